#include "integrations/nccl/pair_sockets.h"

#include <algorithm>
#include <utility>

namespace ropewalk::nccl {

void PairSockets::request(int, int stream) {
  if (addresses_.empty()) return;
  bootstrap::Hello hello;
  hello.purpose = bootstrap::Purpose::socket;
  hello.from = kSenderRank;
  hello.to = kReceiverRank;
  hello.stream = static_cast<uint32_t>(stream);
  dials_.push_back({stream, bootstrap::Dialer(addresses_, hello, key_)});
}

ConnectedSocket PairSockets::take(int, int stream) {
  auto found = ready_.extract(stream);
  if (ready_.empty()) event_.clear();
  return found ? std::move(found.mapped()) : ConnectedSocket();
}

void PairSockets::advance(int64_t now_ns) {
  if (dials_.empty()) return;
  bootstrap::PollSet set;
  for (Dial& dial : dials_) dial.dialer.prepare(set);
  set.wake_at(now_ns);
  set.wait(now_ns);
  for (auto dial = dials_.begin(); dial != dials_.end();) {
    dial->dialer.advance(set, now_ns);
    if (dial->dialer.state() != bootstrap::Dialer::State::connected) {
      ++dial;
      continue;
    }
    deliver(dial->stream, dial->dialer.take());
    dial = dials_.erase(dial);
  }
}

void PairSockets::deliver(int stream, ConnectedSocket socket) {
  ready_[stream] = std::move(socket);
  event_.set();
}

bool PairSockets::is_gone() const {
  return std::ranges::any_of(dials_, [](const Dial& dial) { return dial.dialer.is_gone(); });
}

std::string PairSockets::why() const {
  return dials_.empty() ? std::string() : dials_.front().dialer.why();
}

}  // namespace ropewalk::nccl

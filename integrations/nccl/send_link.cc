#include "integrations/nccl/send_link.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "integrations/nccl/logging.h"

namespace ropewalk::nccl {

SendLink::SendLink(LinkParts parts) : Link(kSenderRank, std::move(parts)) {
  for (Send& send : sends_) send.link = this;
  std::iota(free_.begin(), free_.end(), uint16_t{0});
}

void SendLink::on_notice(uint32_t notice) {
  const uint32_t slot = notice & 0xff, count = notice >> 8;
  const bool is_next = slot == posted_ % kRequestsMax && posted_ - next_ < kRequestsMax;
  if (!is_next || count == 0 || count > kReceivesMax)
    return lose("it posted a receive that makes no sense",
                "run the same version of Ropewalk on every rank");
  counts_[slot] = static_cast<uint8_t>(count);
  ++posted_;
}

void SendLink::on_put_done(uint64_t cookie) {
  --sends_[cookie].under_way;
}

int SendLink::find_entry(int tag) const {
  if (next_ == posted_) return -1;
  const size_t slot = next_ % kRequestsMax;
  const Posting& posting = ring()[slot];
  for (int entry = 0; entry < counts_[slot]; ++entry)
    if ((taken_ >> entry & 1) == 0 && posting[static_cast<size_t>(entry)].tag == tag) return entry;
  return -1;
}

Result SendLink::isend(const void* data, size_t bytes, int tag, MemoryRegistration* memory,
                       Request** request) {
  const std::lock_guard lock(mutex_);
  *request = nullptr;
  if (waiting_count_ > 0 || find_entry(tag) < 0) {
    progress();
    put_waiting();
  }
  if (is_lost()) return fail_lost();
  const int entry = find_entry(tag);
  if (entry < 0 || free_count_ == 0) return Result::success;
  const PostedReceive& receive = ring()[next_ % kRequestsMax][static_cast<size_t>(entry)];
  if (bytes > receive.bytes) {
    warn(
        "isend of {} bytes with tag {}: the peer receives {} at most; give both ends the same "
        "sizes",
        bytes, tag, receive.bytes);
    return Result::invalid_usage;
  }
  if (!is_registered(memory, data, bytes)) {
    warn("isend of {} bytes that are not registered; call regMr first", bytes);
    return Result::invalid_argument;
  }
  Send& send = sends_[free_[--free_count_]];
  send.data = static_cast<const std::byte*>(data);
  send.memory = memory;
  send.bytes = bytes;
  start(send, entry);
  *request = &send;
  return Result::success;
}

void SendLink::start(Send& send, int entry) {
  const size_t slot = next_ % kRequestsMax;
  const PostedReceive& receive = ring()[slot][static_cast<size_t>(entry)];
  send.key = receive.key;
  send.offset = receive.offset;
  send.place = static_cast<uint32_t>(slot) | static_cast<uint32_t>(entry) << 5;
  send.put_bytes = 0;
  send.under_way = 0;
  send.is_put = false;
  send.is_active = true;
  taken_ |= uint32_t{1} << entry;
  if (taken_ == (uint32_t{1} << counts_[slot]) - 1) {
    ++next_;
    taken_ = 0;
  }
  waiting_[(waiting_first_ + waiting_count_++) % kSendsMax] =
      static_cast<uint16_t>(&send - sends_.data());
  put_waiting();
}

void SendLink::put_waiting() {
  while (waiting_count_ > 0 && !is_lost()) {
    Send& send = sends_[waiting_[waiting_first_]];
    while (!send.is_put)
      if (!put_piece(send)) return;
    waiting_first_ = (waiting_first_ + 1) % kSendsMax;
    --waiting_count_;
  }
}

bool SendLink::put_piece(Send& send) {
  const size_t bytes = std::min(kPieceBytes, send.bytes - send.put_bytes);
  PutRequest put{.peer = peer(),
                 .bytes = bytes,
                 .notice = send.place | static_cast<uint32_t>(bytes) << 8,
                 .cookie = static_cast<uint64_t>(&send - sends_.data())};
  if (bytes > 0) {
    put.source = send.data + send.put_bytes;
    put.source_memory = send.memory;
    put.key = send.key;
    put.offset = send.offset + send.put_bytes;
  }
  const Posted posted = transport().put(put);
  if (posted == Posted::full) return false;
  if (posted == Posted::lost) {
    lose_for_transport();
    return false;
  }
  if (posted == Posted::posted) ++send.under_way;
  send.put_bytes += bytes;
  send.is_put = bytes < kPieceBytes;
  return true;
}

Result SendLink::test(Request& request, int* done, int* bytes) {
  const std::lock_guard lock(mutex_);
  Send& send = static_cast<Send&>(request);
  if (!send.is_active) {
    warn("test of a request that is over; test each until it is done, and no more");
    return Result::invalid_argument;
  }
  const auto is_done = [&] { return send.is_put && send.under_way == 0; };
  if (!is_done()) {
    progress();
    put_waiting();
  }
  *done = is_done() ? 1 : 0;
  if (*done == 0) return is_lost() ? fail_lost() : Result::success;
  if (bytes != nullptr)
    *bytes = static_cast<int>(std::min<size_t>(send.bytes, std::numeric_limits<int>::max()));
  send.is_active = false;
  free_[free_count_++] = static_cast<uint16_t>(&send - sends_.data());
  return Result::success;
}

}  // namespace ropewalk::nccl

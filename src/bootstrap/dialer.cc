#include "bootstrap/dialer.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <functional>
#include <limits>
#include <utility>

#include "base/clock.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kConnectTimeoutNs = 1000 * kMillisecond_ns;
constexpr int64_t kPauseMinNs = 5 * kMillisecond_ns;
constexpr int64_t kPauseMaxNs = 200 * kMillisecond_ns;
constexpr int64_t kNoLimit_ns = std::numeric_limits<int64_t>::max();

/// Within a host it is when connect returns.
bool is_writable(int fd) {
  pollfd one = {fd, POLLOUT, 0};
  return ::poll(&one, 1, 0) == 1;
}

}  // namespace

Dialer::Dialer(std::vector<SocketAddress> addresses, const Hello& hello, const Key& key,
               std::vector<size_t> names)
    : addresses_(std::move(addresses)),
      names_(names.empty() ? std::vector<size_t>(addresses_.size()) : std::move(names)),
      hello_(hello),
      key_(key),
      pause_ns_(kPauseMinNs) {
  assert(!addresses_.empty() && names_.size() == addresses_.size());
  in_other_job_.resize(std::ranges::max(names_) + 1);
}

void Dialer::prepare(PollSet& set) {
  if (state_ != State::working) return;
  set.wake_at(until_ns_);
  if (phase_ != Phase::pause) set.add(fd_.get(), phase_ == Phase::connecting ? POLLOUT : POLLIN);
}

void Dialer::advance(const PollSet& set, int64_t now_ns) {
  if (state_ != State::working) return;
  if (phase_ == Phase::pause) {
    if (now_ns >= until_ns_) start(now_ns);
  } else if (set.take_ready(fd_.get())) {
    phase_ == Phase::connecting ? connect_done(now_ns) : receive(now_ns);
  } else if (now_ns >= until_ns_) {
    was_silent_ = true;
    next_address(now_ns, phase_ == Phase::connecting ? "no answer" : "it stopped answering");
  }
}

void Dialer::start(int64_t now_ns) {
  own_ = random_key_pair();
  hello_.public_key = own_.public_key;
  const int error = begin_connect(addresses_[current_], fd_);
  close_on_fork(fd_.get());
  note_refusal(error);
  if (error != EMFILE)
    exhausted_since_ns_ = 0;
  else if (exhausted_since_ns_ == 0)
    exhausted_since_ns_ = now_ns;
  if (error != 0) return next_address(now_ns, errno_text(error));
  phase_ = Phase::connecting;
  until_ns_ = now_ns + kConnectTimeoutNs;
  if (is_writable(fd_.get())) connect_done(now_ns);
}

/// Of a host that is there, and where nothing listens. What else went wrong tells nothing of that,
/// but that this host has no such network.
void Dialer::note_refusal(int error) {
  if (error == ECONNREFUSED) was_refused_ = true;
  if (error != 0 && error != ECONNREFUSED && error != ENETUNREACH) was_silent_ = true;
}

void Dialer::connect_done(int64_t now_ns) {
  error_ = finish_connect(fd_.get());
  note_refusal(error_);
  if (error_ != 0) return next_address(now_ns, errno_text(error_));
  send(encode(hello_), Phase::reply, kReplyBytes, now_ns);
}

/// A fresh socket's buffer takes a handshake message whole; anything else is a broken connection.
void Dialer::send(ByteSpan bytes, Phase next, size_t wanted_bytes, int64_t now_ns) {
  const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n != static_cast<ssize_t>(bytes.size()))
    return next_address(now_ns, n < 0 ? errno_text(errno) : "short write");
  phase_ = next;
  until_ns_ = now_ns + kHandshakeTimeoutNs;
  received_.clear();
  wanted_bytes_ = wanted_bytes;
}

void Dialer::receive(int64_t now_ns) {
  std::array<std::byte, std::max(kReplyBytes, kAnswerBytes)> chunk;
  const ssize_t n = ::recv(fd_.get(), chunk.data(), wanted_bytes_ - received_.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) was_silent_ = true;
  if (n <= 0) return next_address(now_ns, n == 0 ? "it closed the connection" : errno_text(errno));
  received_.insert(received_.end(), chunk.begin(), chunk.begin() + n);
  if (received_.size() < wanted_bytes_) return;
  phase_ == Phase::reply ? prove(now_ns) : take_answer(now_ns);
}

void Dialer::prove(int64_t now_ns) {
  const auto reply = decode<Reply>(received_);
  if (!reply) return next_address(now_ns, "what listens there is not Ropewalk");
  if (reply->version < kHandshakeVersion)
    return next_address(now_ns, "another version of Ropewalk listens there");
  secrets_ = HandshakeSecrets::derive(key_, hello_, *reply, own_.secret_key, reply->public_key);
  if (!secrets_) return next_address(now_ns, "what listens there is not Ropewalk");
  peer_version_ = reply->version;
  send(secrets_->proof(), Phase::answer, kAnswerBytes, now_ns);
  if (awaits_answer() && is_for_good()) until_ns_ = kNoLimit_ns;
}

void Dialer::take_answer(int64_t now_ns) {
  const auto answer = decode<Answer>(received_);
  if (!answer) return next_address(now_ns, "what listens there is not Ropewalk");
  if (!secrets_->is_authentic(*answer)) return reject_address(now_ns);
  found_job_ = answered_ = true;
  obey(answer->result, now_ns);
}

void Dialer::obey(HandshakeResult result, int64_t now_ns) {
  switch (result) {
    case HandshakeResult::accepted:
      state_ = State::connected;
      return;
    case HandshakeResult::yield:
      fd_.reset();
      state_ = State::yielded;
      return;
    case HandshakeResult::bad_key:
      return reject_address(now_ns);
    case HandshakeResult::wrong_version:
      return refuse(
          fmt::format("protocol version {}, this rank has {}", peer_version_, kProtocolVersion));
    case HandshakeResult::wrong_rank:
      return next_address(now_ns, "another rank listens there");
    case HandshakeResult::busy:
      return next_address(now_ns, "the job there has all its ranks already");
    case HandshakeResult::already:
      return next_address(now_ns, "it has this connection already");
  }
}

/// What listens there does not have this job's key.
void Dialer::reject_address(int64_t now_ns) {
  if (is_for_joining(hello_.purpose)) {
    other_job_ = addresses_[current_].text();
    in_other_job_[names_[current_]] = true;
  }
  next_address(now_ns, "another job listens there");
}

void Dialer::next_address(int64_t now_ns, std::string why) {
  why_ = fmt::format("{}: {}", addresses_[current_].text(), why);
  fd_.reset();
  phase_ = Phase::pause;
  until_ns_ = now_ns;
  if (++current_ < addresses_.size()) return;
  ++rounds_;
  const bool is_refusal = std::exchange(was_refused_, false) && !was_silent_ && !answered_;
  refused_rounds_ = is_refusal ? refused_rounds_ + 1 : 0;
  was_silent_ = false;
  unanswered_rounds_ = std::exchange(answered_, false) ? 0 : unanswered_rounds_ + 1;
  // One of several names may mean another host here, such as a bridge's, where another job listens;
  // where all of them lead to another job it is the key. At a name's other addresses, such as
  // localhost's, there may be nothing.
  if (!found_job_ && std::ranges::all_of(in_other_job_, std::identity()))
    return refuse("another job key");
  current_ = 0;
  in_other_job_.assign(in_other_job_.size(), false);
  until_ns_ += pause_ns_;
  pause_ns_ = std::min(2 * pause_ns_, kPauseMaxNs);
}

void Dialer::refuse(std::string why) {
  why_ = std::move(why);
  fd_.reset();
  state_ = State::refused;
}

}  // namespace ropewalk::bootstrap

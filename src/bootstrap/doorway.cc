#include "bootstrap/doorway.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/log.h"
#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kStrangerPatienceNs = 5'000'000'000;
constexpr int64_t kAcceptPauseNs = 50'000'000;
constexpr size_t kSourcesLoggedMax = 64;

bool send_whole(int fd, ByteSpan bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

bool send_verdict(const Arrival& arrival, Verdict verdict) {
  return send_whole(arrival.fd.get(), encode(verdict));
}

Doorway::Doorway(UniqueFd listener, UniqueFd coordinator, int rank, const Key& join_key)
    : listener_(std::move(listener)),
      coordinator_(std::move(coordinator)),
      rank_(rank),
      join_key_(join_key) {}

void Doorway::prepare(PollSet& set, int64_t now_ns) {
  slot_ = coordinator_slot_ = -1;
  if (now_ns < accept_again_ns_) {
    set.wake_at(accept_again_ns_);
  } else {
    slot_ = set.add(listener_.get(), POLLIN);
    if (coordinator_.valid()) coordinator_slot_ = set.add(coordinator_.get(), POLLIN);
  }
  for (HalfOpen& stranger : strangers_) {
    set.wake_at(stranger.expires_ns);
    // One that waits for the session key has said all it may say; do not wake up for it.
    const bool keyless = stranger.hello && !stranger.challenge;
    if (keyless && key_for(*stranger.hello) != nullptr) set.wake_at(now_ns);  // the key has come
    stranger.slot = keyless ? -1 : set.add(stranger.fd.get(), POLLIN);
  }
}

std::vector<Arrival> Doorway::advance(const PollSet& set, int64_t now_ns) {
  std::vector<Arrival> arrivals;
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    const bool readable = set.ready(stranger->slot);
    stranger->slot = -1;
    Progress progress = step(*stranger, readable);
    if (progress == Progress::waiting && now_ns >= stranger->expires_ns)
      progress = refuse(*stranger, "it did not finish the handshake in time", true);
    if (progress == Progress::proved)
      arrivals.push_back({std::move(stranger->fd), *stranger->hello, stranger->source});
    stranger = progress == Progress::waiting ? std::next(stranger) : strangers_.erase(stranger);
  }
  if (set.ready(slot_)) accept_all(listener_.get(), now_ns);
  if (set.ready(coordinator_slot_)) accept_all(coordinator_.get(), now_ns);
  slot_ = coordinator_slot_ = -1;
  return arrivals;
}

void Doorway::accept_all(int listener, int64_t now_ns) {
  for (;;) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      const bool exhausted =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (exhausted) {
        log(LogLevel::warn, rank_, "cannot accept connections: {}; raise `ulimit -n`",
            errno_text(errno));
        accept_again_ns_ = now_ns + kAcceptPauseNs;
      }
      if (exhausted || errno == EAGAIN) return;
      if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return;
      continue;  // that one connection failed
    }
    if (strangers_.size() == kHalfOpenMax) {
      refuse(strangers_.front(), "too many connections at once", true);
      strangers_.pop_front();
    }
    HalfOpen stranger;
    stranger.source = peer_address(fd.get()).ip();
    stranger.fd = std::move(fd);
    stranger.expires_ns = now_ns + kStrangerPatienceNs;
    strangers_.push_back(std::move(stranger));
  }
}

Doorway::Progress Doorway::step(HalfOpen& stranger, bool readable) {
  if (!stranger.hello && readable) {
    const Progress progress = read_hello(stranger);
    if (progress != Progress::proved) return progress;
  }
  if (stranger.hello && !stranger.challenge) {
    const Key* key = key_for(*stranger.hello);
    if (key == nullptr) return Progress::waiting;
    stranger.challenge = challenge_for(*key, *stranger.hello);
    if (!send_whole(stranger.fd.get(), encode(*stranger.challenge)))
      return refuse(stranger, "it went away", false);
    return Progress::waiting;
  }
  return stranger.challenge && readable ? read_proof(stranger) : Progress::waiting;
}

/// `proved` here: the hello is whole.
Doorway::Progress Doorway::read_hello(HalfOpen& stranger) {
  const Progress progress = fill(stranger, kHelloBytes);
  if (progress != Progress::proved) return progress;
  stranger.hello = decode_hello(stranger.received);
  stranger.received.clear();
  return stranger.hello ? Progress::proved
                        : refuse(stranger, "its first bytes are not Ropewalk's", true);
}

Doorway::Progress Doorway::read_proof(HalfOpen& stranger) {
  const Progress progress = fill(stranger, kProofBytes);
  if (progress != Progress::proved) return progress;
  Mac proof;
  std::copy_n(stranger.received.begin(), proof.size(), proof.begin());
  if (verify(*key_for(*stranger.hello), *stranger.hello, *stranger.challenge, proof))
    return Progress::proved;
  send_whole(stranger.fd.get(), encode(Verdict::bad_key));
  return refuse(stranger, "wrong job key", true);
}

const Key* Doorway::key_for(const Hello& hello) const {
  if (hello.purpose == Purpose::join) return &join_key_;
  return session_key_ ? &*session_key_ : nullptr;
}

Doorway::Progress Doorway::fill(HalfOpen& stranger, size_t want) {
  std::array<std::byte, kHelloBytes> chunk;
  const ssize_t n = ::recv(stranger.fd.get(), chunk.data(), want - stranger.received.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::waiting;
  if (n <= 0) {
    // A dialer with another key hangs up here: it cannot verify the challenge.
    if (stranger.challenge)
      return refuse(stranger, "it hung up at the challenge: wrong job key?", true);
    return refuse(stranger, "it closed the connection", false);
  }
  stranger.received.insert(stranger.received.end(), chunk.begin(), chunk.begin() + n);
  return stranger.received.size() == want ? Progress::proved : Progress::waiting;
}

Doorway::Progress Doorway::refuse(const HalfOpen& stranger, const char* why, bool suspicious) {
  if (suspicious) {
    ++refused_;
    last_refused_ = fmt::format("{} ({})", stranger.source, why);
  }
  const bool first =
      logged_.size() < kSourcesLoggedMax && suspicious && logged_.insert(stranger.source).second;
  log(first ? LogLevel::warn : LogLevel::debug, rank_, "refused a connection from {}: {}",
      stranger.source, why);
  return Progress::over;
}

}  // namespace ropewalk::bootstrap

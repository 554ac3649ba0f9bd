#include "bootstrap/acceptor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "base/log.h"
#include "bootstrap/net.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int64_t kAcceptPauseNs = 50 * kMillisecond_ns;
constexpr int kRepliesAtOnce = 32;
constexpr size_t kSourcesLoggedMax = 64;

bool send_whole(int fd, ByteSpan bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

bool send_result(const AuthenticatedSocket& incoming, HandshakeResult result) {
  return send_whole(incoming.fd.get(), encode(incoming.secrets.answer(result)));
}

Acceptor::Acceptor(std::vector<UniqueFd> own, std::vector<UniqueFd> coordinator, int rank,
                   const Key& join_key)
    : listeners_{std::move(own), std::move(coordinator)}, rank_(rank), join_key_(join_key) {
  for (const auto& listeners : listeners_)
    for (const UniqueFd& fd : listeners) close_on_fork(fd.get());
  keep_spare();
}

void Acceptor::keep_spare() {
  if (!spare_) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Acceptor::prepare(PollSet& set, int64_t now_ns) {
  for (const Listener listener : {kCoordinator, kOwn}) {
    if (listeners_[listener].empty()) continue;
    const int64_t at_ns = std::max(accept_again_ns_, room_at_ns(listener));
    if (at_ns > now_ns)
      set.wake_at(at_ns);
    else
      for (const UniqueFd& fd : listeners_[listener]) set.add(fd.get(), POLLIN);
  }
  for (HalfOpen& connection : pending_) {
    set.wake_at(connection.since_ns + kHandshakeTimeoutNs);
    // One that waits for the session key has said all it may say; do not wake up for it.
    const bool keyless = connection.hello && !connection.secrets;
    if (keyless && key_for(*connection.hello) != nullptr) set.wake_at(now_ns);  // the key has come
    if (!keyless) set.add(connection.fd.get(), POLLIN);
  }
}

std::vector<AuthenticatedSocket> Acceptor::advance(const PollSet& set, int64_t now_ns) {
  std::vector<AuthenticatedSocket> incoming;
  replies_left_ = kRepliesAtOnce;
  for (const Listener listener : {kCoordinator, kOwn})
    for (const UniqueFd& fd : listeners_[listener])
      if (set.take_ready(fd.get())) accept_all(fd.get(), listener, now_ns);
  for (auto connection = pending_.begin(); connection != pending_.end();) {
    // What a dialer says first is there, as a rule, when it is accepted.
    const bool is_new = std::exchange(connection->is_new, false);
    Progress progress = step(*connection, set.take_ready(connection->fd.get()) || is_new);
    if (progress == Progress::waiting && now_ns >= connection->since_ns + kHandshakeTimeoutNs)
      progress = refuse(*connection, "it did not finish the handshake in time", true);
    if (progress == Progress::complete) {
      AuthenticatedSocket socket{std::move(connection->fd), *connection->hello,
                                 *connection->secrets, connection->source};
      if (connection->is_on_spare) {
        send_result(socket, HandshakeResult::busy);
        if (exhausted_since_ns_ == 0) exhausted_since_ns_ = now_ns;
      } else {
        exhausted_since_ns_ = 0;
        incoming.push_back(std::move(socket));
      }
    }
    connection = progress == Progress::waiting ? std::next(connection) : pending_.erase(connection);
  }
  return incoming;
}

bool Acceptor::is_full(Listener listener) const {
  return std::ranges::count(pending_, listener, &HalfOpen::listener) >=
         std::ptrdiff_t{kHalfOpenMax};
}

std::list<Acceptor::HalfOpen>::iterator Acceptor::oldest_of_the_most(Listener listener) {
  std::map<std::string_view, int> by_source;
  int most = 0;
  for (const HalfOpen& connection : pending_)
    if (connection.listener == listener) most = std::max(most, ++by_source[connection.source]);
  return std::ranges::find_if(pending_, [&](const HalfOpen& connection) {
    return connection.listener == listener && by_source[connection.source] == most;
  });
}

int64_t Acceptor::room_at_ns(Listener listener) {
  return is_full(listener) ? oldest_of_the_most(listener)->since_ns + kSparedNs : 0;
}

bool Acceptor::make_room(Listener listener, int64_t now_ns) {
  const auto leaves = oldest_of_the_most(listener);
  if (leaves == pending_.end() || now_ns < leaves->since_ns + kSparedNs) return false;
  refuse(*leaves, "too many connections at once", true);
  pending_.erase(leaves);
  return true;
}

UniqueFd Acceptor::accept_one(int listener_fd, bool& is_on_spare) {
  const auto accept = [&] {
    UniqueFd fd(::accept4(listener_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    close_on_fork(fd.get());
    return fd;
  };
  keep_spare();
  UniqueFd fd = accept();
  is_on_spare = !fd && errno == EMFILE && spare_;
  if (!is_on_spare) return fd;
  spare_.reset();
  return accept();
}

void Acceptor::accept_all(int listener_fd, Listener listener, int64_t now_ns) {
  while (room_at_ns(listener) <= now_ns) {
    HalfOpen connection;
    UniqueFd fd = accept_one(listener_fd, connection.is_on_spare);
    if (!fd) {
      const bool exhausted =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (exhausted && make_room(listener, now_ns)) continue;
      if (exhausted && !std::exchange(exhaustion_told_, true))
        log(LogLevel::warn, rank_, "cannot accept connections: {}", errno_text(errno));
      if (exhausted) accept_again_ns_ = now_ns + kAcceptPauseNs;
      if (exhausted || errno == EAGAIN) return;
      if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) return;
      continue;  // that one connection failed
    }
    if (is_full(listener)) make_room(listener, now_ns);
    connection.listener = listener;
    connection.source = peer_address(fd.get()).ip();
    connection.fd = std::move(fd);
    connection.since_ns = now_ns;
    pending_.push_back(std::move(connection));
  }
}

bool Acceptor::serves(Listener listener, const Hello& hello) const {
  if (!is_for_joining(hello.purpose)) return listener == kOwn;
  return listener == kCoordinator || takes_joins_;
}

Acceptor::Progress Acceptor::step(HalfOpen& connection, bool readable) {
  const bool is_keyless = connection.hello && !connection.secrets;
  if (readable && !is_keyless) {
    const Progress read = fill(connection, connection.hello ? kProofBytes : kHelloBytes);
    if (read != Progress::complete) return read;
    if (connection.hello) return check_proof(connection);
    connection.hello = decode<Hello>(connection.received);
    connection.received.clear();
    if (!connection.hello) return refuse(connection, "its first bytes are not Ropewalk's", true);
    if (connection.hello->version < kHandshakeVersion)
      return refuse(connection, "it has another version of Ropewalk", true);
    if (!serves(connection.listener, *connection.hello))
      return refuse(connection, "it asks for what there is at another port", true);
  }
  if (!connection.hello || connection.secrets || replies_left_ == 0) return Progress::waiting;
  const Key* key = key_for(*connection.hello);
  return key == nullptr ? Progress::waiting : reply(connection, *key);
}

Acceptor::Progress Acceptor::reply(HalfOpen& connection, const Key& key) {
  --replies_left_;
  const KeyPair own = random_key_pair();
  const Reply reply{kProtocolVersion, own.public_key};
  connection.secrets = HandshakeSecrets::derive(key, *connection.hello, reply, own.secret_key,
                                                connection.hello->public_key);
  if (!connection.secrets) return refuse(connection, "its public key leads to no secret", true);
  if (!send_whole(connection.fd.get(), encode(reply)))
    return refuse(connection, "it went away", false);
  return Progress::waiting;
}

Acceptor::Progress Acceptor::check_proof(const HalfOpen& connection) {
  Mac proof;
  std::ranges::copy(connection.received, proof.begin());
  if (connection.secrets->matches(proof)) return Progress::complete;
  send_whole(connection.fd.get(), encode(Answer{HandshakeResult::bad_key, {}}));
  return refuse(connection, "wrong job key", true);
}

const Key* Acceptor::key_for(const Hello& hello) const {
  if (is_for_joining(hello.purpose)) return &join_key_;
  return session_key_ ? &*session_key_ : nullptr;
}

Acceptor::Progress Acceptor::fill(HalfOpen& connection, size_t want) {
  std::array<std::byte, kHelloBytes> chunk;
  const ssize_t n = ::recv(connection.fd.get(), chunk.data(), want - connection.received.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::waiting;
  if (n <= 0) return refuse(connection, "it closed the connection", false);
  connection.received.insert(connection.received.end(), chunk.begin(), chunk.begin() + n);
  return connection.received.size() == want ? Progress::complete : Progress::waiting;
}

Acceptor::Progress Acceptor::refuse(const HalfOpen& connection, const char* why, bool suspicious) {
  if (suspicious) {
    ++refused_;
    last_refused_ = fmt::format("{} ({})", connection.source, why);
  }
  const bool first =
      logged_.size() < kSourcesLoggedMax && suspicious && logged_.insert(connection.source).second;
  log(first ? LogLevel::warn : LogLevel::debug, rank_, "refused a connection from {}: {}",
      connection.source, why);
  return Progress::over;
}

}  // namespace ropewalk::bootstrap

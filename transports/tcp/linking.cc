// How the transport comes by sockets, and which of them epoll watches.
#include <fmt/format.h>
#include <sys/epoll.h>

#include <cassert>
#include <cerrno>

#include "transports/tcp/peer.h"

namespace ropewalk {

using tcp::Stream;

namespace {
constexpr uint64_t kSocketsTag = 0;  // no link's address
}  // namespace

void TcpTransport::fail_system(const char* operation, const char* call) {
  throw Error(ErrorCode::system, operation, fmt::format("{}: {}", call, errno_text(errno)),
              "raise the limit on open files (ulimit -n)");
}

void TcpTransport::connect(int peer, std::span<const std::byte> hello) {
  check_connect(rank_, size_, peer, hello);
  if (peers_.find(peer) != nullptr) return;
  Peer& added = peers_.add(std::make_unique<Peer>(peer));
  added.hello.assign(hello.begin(), hello.end());
  added.links.resize(static_cast<size_t>(streams_));
  pending_.push_back(&added);
  socket_watch_.set(true, epoll_fd_, kSocketsTag);
  for (int stream = 0; stream < streams_; ++stream) sockets_.request(peer, stream);
  take_sockets();
}

std::optional<std::span<const std::byte>> TcpTransport::hello_of(int peer) const {
  return peers_.hello_of(peer);
}

bool TcpTransport::is_wanted(int peer) const {
  return peers_.is_wanted(peer, sockets_);
}

LossReason TcpTransport::why_lost(int peer) const {
  return peers_.why_lost(peer);
}

void TcpTransport::take_sockets() {
  std::erase_if(pending_, [this](Peer* peer) { return take_sockets(*peer); });
  if (pending_.empty()) socket_watch_.set(false, epoll_fd_, kSocketsTag);
}

// True where the peer has all its sockets. May lose the peer.
bool TcpTransport::take_sockets(Peer& peer) {
  bool complete = true;
  for (int index = 0; index < streams_ && peer.open(); ++index) {
    if (peer.links[static_cast<size_t>(index)] != nullptr) continue;
    const int fd = sockets_.take(peer.rank, index);
    if (fd >= 0) {
      add_link(peer, index, fd);
    } else {
      complete = false;
    }
  }
  return complete && peer.open();
}

void TcpTransport::add_link(Peer& peer, int index, int fd) {
  const tcp::Reader::Expected expected{peer.rank, static_cast<uint32_t>(index),
                                       static_cast<uint32_t>(streams_)};
  // Only stream 0 carries what the caller has to say.
  const auto hello = index == 0 ? std::span<const std::byte>(peer.hello) : std::span<std::byte>();
  auto& link = peer.links[static_cast<size_t>(index)];
  link = std::make_unique<PeerStream>(peer, fd, rank_, expected, hello, regions_);
  links_.push_back(link.get());
  if (watching_links_) watch(*link);
  if (peer.open()) flush(peer);  // the hello
}

// Makes epoll report what the stream waits for.
void TcpTransport::watch(PeerStream& link) {
  Stream& stream = link.stream;
  const uint32_t interest = (stream.reader().stalled() ? 0u : uint32_t{EPOLLIN}) |
                            (stream.has_output() ? uint32_t{EPOLLOUT} : 0u);
  if (!watching_links_ || stream.fd() < 0 || stream.interest == interest || !link.peer.open())
    return;
  epoll_event event{};
  event.events = interest;
  event.data.ptr = &link;
  const int change = stream.interest == Stream::kNotWatched ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  stream.interest = interest;
  if (epoll_ctl(epoll_fd_, change, stream.fd(), &event) != 0)
    peers_.lose(link.peer, why_not_watched(errno));
}

void TcpTransport::watch_links(bool on) {
  if (on == watching_links_) return;
  watching_links_ = on;
  for (PeerStream* link : links_) {
    Stream& stream = link->stream;
    if (on) {
      watch(*link);
    } else if (stream.interest != Stream::kNotWatched) {
      stream.interest = Stream::kNotWatched;
      epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, stream.fd(), nullptr);
    }
  }
}

}  // namespace ropewalk

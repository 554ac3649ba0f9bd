// How the transport comes by sockets, and which of them epoll watches.
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "transports/tcp/tcp_transport.h"

namespace ropewalk {

using tcp::Stream;

void TcpTransport::connect(int peer, std::span<const std::byte> hello) {
  if (is_new(peer, hello)) begin_link(std::make_unique<Peer>(peer, hello));
}

void TcpTransport::take_socket(Peer& peer, int stream, ConnectedSocket socket) {
  const tcp::Reader::Expected expected{peer.rank, static_cast<uint32_t>(stream),
                                       static_cast<uint32_t>(streams_), secure_};
  // Only stream 0 carries what the caller has to say.
  const auto hello = stream == 0 ? std::span(peer.hello) : std::span<const std::byte>();
  auto& link = peer.links.emplace_back(new PeerStream{
      peer, Stream(std::move(socket), rank_, expected, hello, regions_, peer.inbox, peer.outbox)});
  links_.push_back(link.get());
  watch(*link);
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
  if (epoll_ctl(epoll_fd_.get(), change, stream.fd(), &event) != 0)
    lose_unwatched(link.peer, errno);
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
      epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, stream.fd(), nullptr);
    }
  }
}

}  // namespace ropewalk

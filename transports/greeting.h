// The handshake over a peer's authenticated socket, for transports whose bytes then go elsewhere.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "bootstrap/sockets.h"
#include "memory/memfd.h"

namespace ropewalk {

/// This rank's end of it. `Reader` is a HandshakeReader. The socket stays open afterwards, and
/// tells when the peer has gone.
template <class Reader>
struct Greeting {
  UniqueFd socket;
  std::vector<std::byte> to_send;
  size_t sent = 0;  // of to_send
  Reader reader;

  bool all_sent() const { return sent == to_send.size(); }
  /// The peer's; empty before it has come.
  std::span<const std::byte> hello() const {
    if (!reader.complete()) return {};
    return reader.handshake().hello;
  }

  /// As much as the socket takes now. Why it takes no more for ever is found by reading.
  void send() {
    assert(socket);
    while (!all_sent()) {
      const ssize_t written =
          ::send(socket.get(), to_send.data() + sent, to_send.size() - sent, MSG_NOSIGNAL);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return;
      sent += static_cast<size_t>(written);
    }
  }

  /// Calls `take(byte)` for what has come, until it returns false. Returns why nothing will come
  /// any more, or nothing.
  template <class Take>
  std::string receive(Take&& take) {
    assert(socket);
    std::array<std::byte, 4096> bytes;
    for (;;) {
      const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
      if (count == 0) return "connection closed by the peer";
      if (count < 0)
        return errno == EAGAIN || errno == EINTR ? "" : std::generic_category().message(errno);
      for (const std::byte byte : std::span(bytes).first(static_cast<size_t>(count)))
        if (!take(byte)) return {};
    }
  }
};

/// Gives sockets to those of `linking` that wait for one, and calls `taken(peer)` for each, which
/// may take that peer off the list. True where none waits any more.
template <class Peer, class Taken>
bool take_sockets(SocketSource& sockets, const std::vector<Peer*>& linking, Taken&& taken) {
  bool all = true;
  for (size_t i = linking.size(); i-- > 0;) {
    Peer& peer = *linking[i];
    if (peer.greeting.socket || !peer.open()) continue;
    const int fd = sockets.take(peer.rank, 0);
    all &= fd >= 0;
    if (fd < 0) continue;
    peer.greeting.socket = UniqueFd(fd);
    taken(peer);
  }
  return all;
}

}  // namespace ropewalk

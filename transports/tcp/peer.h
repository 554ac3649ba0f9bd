// What the transport keeps per peer and per socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/stream.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {

inline std::string errno_text(int error) {
  return std::generic_category().message(error);
}

struct TcpTransport::PeerStream {
  inline PeerStream(Peer& peer_, int fd, int rank, const tcp::Reader::Expected& expected,
                    std::span<const std::byte> hello, const Regions& regions);
  Peer& peer;
  tcp::Stream stream;
  bool is_held_back = false;  // in the transport's list
};

struct TcpTransport::Peer final : NetworkPeer {
  using NetworkPeer::NetworkPeer;
  // For NetworkPeers. What arrived whole is given out also after the peer was lost.
  bool gives() const { return state != State::linking && state != State::dropped; }
  bool put_done() const { return outbox.done(); }
  uint64_t take_put() { return outbox.take(); }
  bool notice_ready() const { return inbox.ready(); }
  uint32_t take_notice() { return inbox.take(); }
  std::span<const std::byte> hello_here() const { return links[0]->stream.reader().hello(); }

  int ended = 0;                                   // streams that the peer has closed
  uint64_t urgent_puts = 0;                        // sent, ever
  std::vector<std::byte> hello;                    // ours, for the peer
  std::vector<std::unique_ptr<PeerStream>> links;  // by stream; null: no socket yet
  tcp::Inbox inbox;
  tcp::Outbox outbox;
};

inline TcpTransport::PeerStream::PeerStream(Peer& peer_, int fd, int rank,
                                            const tcp::Reader::Expected& expected,
                                            std::span<const std::byte> hello,
                                            const Regions& regions)
    : peer(peer_), stream(fd, rank, expected, hello, regions, peer_.inbox, peer_.outbox) {}

}  // namespace ropewalk

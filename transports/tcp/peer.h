// What the transport keeps per peer and per socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/network_peers.h"
#include "transports/tcp/inbox.h"
#include "transports/tcp/outbox.h"
#include "transports/tcp/stream.h"

namespace ropewalk::tcp {

struct Peer;

struct PeerStream {
  Peer& peer;
  Stream stream;
  bool is_held_back = false;  // in the transport's list
};

struct Peer final : NetworkPeer {
  Peer(int rank_, std::span<const std::byte> hello_)
      : NetworkPeer(rank_), hello(hello_.begin(), hello_.end()) {}

  // For NetworkPeers. What arrived whole is given out also after the peer was lost.
  bool gives() const { return state != State::linking && state != State::dropped; }
  bool put_done() const { return outbox.done(); }
  uint64_t take_put() { return outbox.take(); }
  bool notice_ready() const { return inbox.ready(); }
  uint32_t take_notice() { return inbox.take(); }
  std::span<const std::byte> hello_here() const { return links[0]->stream.reader().hello(); }

  const std::vector<std::byte> hello;  // ours, for the peer
  int ended = 0;                       // streams that the peer has closed
  uint64_t urgent_puts = 0;            // sent, ever
  size_t turn = 0;                     // the stream that writes first, modulo their number
  std::vector<std::unique_ptr<PeerStream>> links;  // by stream, of those with a socket
  Inbox inbox;
  Outbox outbox;
};

}  // namespace ropewalk::tcp

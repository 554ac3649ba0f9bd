// What the transports over a network share: the queue of peers of which `poll` has something to
// give, and what `connect` refuses.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "ropewalk/transport.h"

namespace ropewalk {

/// Throws Error(invalid_argument).
inline void check_connect(int rank, int size, int peer, std::span<const std::byte> hello) {
  if (peer < 0 || peer >= size || peer == rank)
    throw Error(ErrorCode::invalid_argument, "connect",
                fmt::format("rank {} cannot link with rank {} of {}", rank, peer, size));
  if (hello.size() > kHelloBytesMax)
    throw Error(ErrorCode::invalid_argument, "connect",
                fmt::format("a hello of {} bytes; {} at most", hello.size(), kHelloBytesMax));
}

/// Whether a put lies in the region that its key names, as far as the key tells.
inline bool is_within_key(const PutRequest& request) {
  return request.bytes == 0 || (request.offset <= request.key.bytes &&
                                request.bytes <= request.key.bytes - request.offset);
}

/// Peers in the order in which they had something, each at most once. `Peer` has a bool `in_ready`,
/// which is this queue's.
template <class Peer>
class ReadyPeers {
 public:
  explicit ReadyPeers(int peers_max) : ring_(static_cast<size_t>(std::max(peers_max, 0))) {}

  bool empty() const { return count_ == 0; }
  void add(Peer& peer) {
    if (peer.in_ready) return;
    peer.in_ready = true;
    size_t at = first_ + count_++;  // no remainder: a division costs more than all else here
    if (at >= ring_.size()) at -= ring_.size();
    ring_[at] = &peer;
  }

  /// Takes peers until `into` is full or none is left. `collect(peer, rest)` fills the rest and
  /// returns how many; it, or what it calls, adds a peer again that has more.
  template <class Collect>
  size_t drain_into(std::span<Completion> into, Collect&& collect) {
    size_t count = 0;
    while (count_ > 0 && count < into.size()) {
      Peer& peer = *ring_[first_];
      if (++first_ == ring_.size()) first_ = 0;
      --count_;
      peer.in_ready = false;
      count += collect(peer, into.subspan(count));
    }
    return count;
  }

 private:
  std::vector<Peer*> ring_;
  size_t first_ = 0, count_ = 0;
};

}  // namespace ropewalk

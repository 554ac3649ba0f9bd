// What the transport keeps per peer.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/greeting.h"
#include "transports/network_peers.h"
#include "transports/verbs/handshake.h"
#include "transports/verbs/lane.h"

namespace ropewalk::verbs {

/// Puts of at least so many bytes are cut over all lanes.
inline constexpr size_t kStripeBytes = 32 << 10;

struct Peer final : NetworkPeer {
  static constexpr uint32_t kPutsMax = 256;  // a power of two

  /// A put whose put_done is still to come.
  struct Put {
    uint64_t cookie = 0;
    uint8_t lanes = 0;  // of these the position must be reached; 0: its source is free already
    std::array<uint32_t, kLanesMax> ends{};
  };

  Peer(int rank_, std::span<const std::byte> hello_)
      : NetworkPeer(rank_), hello(hello_.begin(), hello_.end()) {}
  /// It has lanes, or needs none any more.
  bool prepared() const { return !lanes.empty() || !open(); }

  /// For a put whose put_done is to come.
  bool has_place() const { return end_put - first_put < kPutsMax; }
  // For NetworkPeers.
  bool gives() const { return state == State::linked; }
  bool put_done() const {
    if (first_put == end_put) return false;
    const Put& put = puts[first_put % kPutsMax];
    for (size_t lane = 0; lane < put.lanes; ++lane)
      if (!lanes[lane]->is_done(put.ends[lane])) return false;
    return true;
  }
  uint64_t take_put() {
    assert(put_done());
    return puts[first_put++ % kPutsMax].cookie;
  }
  bool notice_ready() const {
    const Lane& first = *lanes.front();
    if (!first.has_notice()) return false;
    if (!is_striped(first.front().bytes)) return true;
    for (const auto& lane : lanes)
      if (!lane->has_notice()) return false;
    return true;
  }
  uint32_t take_notice() {
    assert(notice_ready());
    const Lane::Notice first = lanes.front()->front();
    const size_t used = is_striped(first.bytes) ? lanes.size() : 1;
    for (size_t i = 0; i < used; ++i) lanes[i]->take();
    return first.notice;
  }
  std::span<const std::byte> hello_here() const { return greeting.hello(); }

  /// Long puts use all lanes. The first carries at least kStripeBytes of those and no other does,
  /// so that the receiver knows them by the length of what arrives there.
  bool is_striped(size_t bytes) const { return lanes.size() > 1 && bytes >= kStripeBytes; }

  const std::vector<std::byte> hello;  // ours, for the peer
  // While a port is away; by MonotonicClock. When it is given up, and when it is looked at next.
  int64_t prepare_by_ns = 0, prepare_again_ns = 0;
  bool is_held = false;                // lanes hold sends back until `release`
  Greeting<HandshakeReader> greeting;  // the handshake, then kReady
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<PortAddress> own_ports;  // by lane, where prepared
  uint32_t address_changes = 0;        // how many there had been before they were asked for
  std::array<Put, kPutsMax> puts;      // a ring
  uint32_t first_put = 0, end_put = 0;
};

}  // namespace ropewalk::verbs

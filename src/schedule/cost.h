// What moving and adding bytes costs: the model behind the simulator and the planner.
#pragma once

#include <algorithm>
#include <cstddef>

namespace ropewalk {

/// Posting a message of b bytes keeps its sender busy for `overhead`, then the outgoing port for
/// b * s_per_byte; its first byte arrives `latency` after it left and the incoming port is busy for
/// b * s_per_byte.
struct LinkCost {
  double latency_s = 0;
  double overhead_s = 0;
  double s_per_byte = 0;

  bool operator==(const LinkCost&) const = default;
};

/// Within a host every rank has a port of its own; between hosts the ranks of a host share one, or
/// as many as it has adapters, evenly.
struct CostModel {
  LinkCost intra, inter;
  double adapters = 1;           // of a host, that its ranks use; `inter` is of one
  double reduce_s_per_byte = 0;  // adding one incoming byte to one at hand
  double racks_s_per_byte = 0;   // of links between racks, much slower than `inter`; 0: none

  bool operator==(const CostModel&) const = default;
};

/// An order of magnitude, for choosing where nothing was measured; transports have theirs of links.
inline constexpr double kReducePerByte = 50e-12;

/// What a schedule may cost at most, in the terms of the algorithm's paper.
struct Bound {
  /// The most that any rank sends, as a fraction of the whole vector (for reduce_scatter,
  /// all_gather, gather, scatter and all_to_all: of all ranks' parts together).
  double sent = 0;
  /// The longest chain of messages each of which is sent because of the one before.
  int rounds = 0;
};

/// A call in the terms of the closed forms.
struct CostTerms {
  Bound bound;  // the algorithm's
  double n, bytes, slice;
  LinkCost link;    // the slower kind that occurs
  LinkCost inside;  // within a host
  LinkCost near;    // between hosts of a rack
  double add;       // seconds per byte added
  double hosts, owners, local;
  double adapters;           // that the ranks of a host share
  double all_cross;          // ranks that share a network port, where everybody talks to everybody
  double ring_cross;         // links of the rank-order ring that leave the same host
  double racks, rack_size;   // how many, and ranks of the largest; 1: no link is slower
  double across_s_per_byte;  // between racks
  double rows, row_size;     // how many, and ranks of the largest; 1: all are in it
  bool mapped;
  bool described;  // nothing but what a description of the network says: see PlanRequest
  // Of the engine (engine/wire.h):
  double whole_max;  // longer messages are announced, granted and cut
  double window;     // slices of a stream that is added up which may be on their way

  bool is_whole(double block) const { return block <= whole_max; }
  double slices_of(double block) const {
    double count = 1;  // ceil without libm
    if (block > slice) count = static_cast<double>(static_cast<size_t>(block / slice));
    return block > slice && count * slice < block ? count + 1 : count;
  }
  /// A message in a chain of messages. A mapped receiver answers: "you may reuse your block".
  double round() const { return mapped ? 2 * link.latency_s + link.overhead_s : link.latency_s; }
  /// How many of so many messages at once pass one adapter.
  double sharing(double messages) const {
    return std::max(messages / adapters, std::min(messages, 1.0));
  }
  /// Many senders of blocks into one network port collide more than one sender does.
  double incast(double block) const { return 1 + kIncast * (n - 2) * collisions(block); }
  /// The same of blocks of any length.
  double incast() const { return hosts > 1 ? 1 + kIncast * (n - 2) : 1; }
  /// The same where a rank has so many partners, one after the other.
  double colliding(double partners, double block) const {
    return 1 + 0.08 * (partners - 1) * collisions(block);
  }

 private:
  static constexpr double kIncast = 0.05;
  /// Short blocks do not: their senders need no answer to send all, and ports hold them.
  double collisions(double block) const {
    constexpr double kHeld = 8 << 10;
    return hosts > 1 ? std::clamp(block / kHeld - 1, 0.0, 1.0) : 0;
  }
};

/// Nothing hides the adding: one thread of a rank posts, adds and, over TCP, copies.
inline double adding(const CostTerms& t, double bytes) {
  return bytes * t.add;
}

/// Of a described network, whose links do nothing but pass one message after the other: so many
/// messages of `bytes` through the port of a host, and through the uplink of a rack.
inline double passing(const CostTerms& t, double bytes, double of_host, double of_rack) {
  if (t.hosts == 1) return 0;
  const double host = t.sharing(of_host) * t.near.s_per_byte;
  const double rack = t.racks > 1 ? of_rack * t.across_s_per_byte : 0;
  return bytes * (rack > host ? rack : host);
}

/// Moving `bytes` through a port that `sharing` ranks use.
inline double moving(const CostTerms& t, double bytes, double sharing) {
  return bytes * t.link.s_per_byte * t.sharing(sharing);
}

}  // namespace ropewalk

// Closed forms of the cost model, one per algorithm. Checked against the simulator in
// planner_test.cc. Only + - * / and comparisons: the result must be the same on every rank.
#include <algorithm>

#include "planner/planner.h"
#include "schedule/bound.h"
#include "schedule/hosts.h"

namespace ropewalk {
namespace {

/// The request in the closed forms' terms.
struct Terms {
  double n, bytes, slice;
  LinkCost link;    // the slower kind that occurs
  LinkCost inside;  // within a host
  double add;       // seconds per byte added
  double hosts, owners, local;
  double all_cross;   // ranks that share a network port, where everybody talks to everybody
  double ring_cross;  // links of the rank-order ring that leave the same host
  bool mapped;

  double slices_of(double block) const {
    double count = 1;  // ceil without libm
    if (block > slice) count = static_cast<double>(static_cast<size_t>(block / slice));
    return block > slice && count * slice < block ? count + 1 : count;
  }
  /// A message in a chain of messages. A mapped receiver answers: "you may reuse your block".
  double round() const { return mapped ? 2 * link.latency_s + link.overhead_s : link.latency_s; }
  /// Many senders into one network port collide more than one sender does.
  double incast() const { return hosts > 1 ? 1 + 0.05 * (n - 2) : 1; }
};

Terms terms_of(const PlanRequest& request, size_t slice_bytes) {
  const Hosts hosts = hosts_of(request.hosts, request.ranks);
  const bool several = hosts.count() > 1;
  std::vector<int> leaving(static_cast<size_t>(hosts.count()), 0);
  for (int rank = 0; rank < request.ranks; ++rank) {
    const int host = hosts.host_of[static_cast<size_t>(rank)];
    const int next = hosts.host_of[static_cast<size_t>((rank + 1) % request.ranks)];
    if (host != next) ++leaving[static_cast<size_t>(host)];
  }
  Terms t{};
  t.n = request.ranks;
  t.bytes = static_cast<double>(request.bytes);
  t.slice = static_cast<double>(std::max<size_t>(slice_bytes, 1));
  t.link = several ? request.cost.inter : request.cost.intra;
  t.inside = request.cost.intra;
  t.add = request.cost.reduce_s_per_byte;
  t.hosts = hosts.count();
  t.owners = hosts.size_min();
  t.local = hosts.size_max();
  t.all_cross = several ? t.local : 1;
  t.ring_cross = std::max(1, *std::max_element(leaving.begin(), leaving.end()));
  t.mapped = request.mapped;
  return t;
}

/// Nothing hides the adding: one thread of a rank posts, adds and, over TCP, copies.
double adding(const Terms& t, double bytes) {
  return bytes * t.add;
}

/// Moving `bytes` through a port that `sharing` ranks use.
double moving(const Terms& t, double bytes, double sharing) {
  return bytes * t.link.s_per_byte * sharing;
}

double ring(const Terms& t, Collective collective) {
  const double hops = t.n - 1;
  if (collective == Collective::broadcast || collective == Collective::reduce) {
    const double slices = t.slices_of(t.bytes), slice = t.bytes / slices;
    const bool adds = collective == Collective::reduce;
    const double move = adds && t.mapped ? 0 : moving(t, slice, t.ring_cross);
    const double stage = t.link.overhead_s + move, add = adds ? slice * t.add : 0;
    return hops * (t.round() + stage + add) + (slices - 1) * (stage + add);
  }
  const double block = t.bytes / t.n;
  const double hop = t.round() + t.slices_of(block) * t.link.overhead_s;
  const double move = moving(t, block, t.ring_cross);
  const double reduce_scatter = hops * (hop + (t.mapped ? 0 : move)) + adding(t, hops * block);
  const double all_gather = hops * (hop + move);
  return (collective == Collective::all_gather ? 0 : reduce_scatter) +
         (collective == Collective::reduce_scatter ? 0 : all_gather);
}

/// Two halves, each through its tree, a slice at a time; a rank with two children serves one after
/// the other. Once the first slices are down, the others follow at the pace of the ports.
double tree(const Terms& t, Collective collective, int rounds) {
  const double half = t.bytes / 2, slices = t.slices_of(half), slice = half / slices;
  const double both = collective == Collective::all_reduce ? 2 : 1;
  const double first = 2 * (t.link.overhead_s + moving(t, slice, 1));
  const double next = 2 * (t.link.overhead_s + moving(t, slice, t.all_cross));
  const bool adds = collective != Collective::broadcast;
  return rounds * (t.round() + first) + both * (slices - 1) * next +
         (adds ? adding(t, rounds / both * slice + t.bytes) : 0);
}

double recursive_doubling(const Terms& t, Collective collective, const Bound& bound) {
  if (collective == Collective::all_gather)
    return bound.rounds * t.round() + (t.n - 1) * t.slices_of(t.bytes / t.n) * t.link.overhead_s +
           moving(t, bound.sent * t.bytes, t.all_cross);
  const double slices = t.slices_of(t.bytes);
  const double round = t.round() + slices * t.link.overhead_s + moving(t, t.bytes, t.all_cross);
  return bound.rounds * round + adding(t, bound.rounds * t.bytes);
}

double halving_doubling(const Terms& t, Collective collective, const Bound& bound) {
  const double ways = collective == Collective::all_reduce ? 2 : 1;
  const double block = t.bytes / t.n, blocks = t.n - 1;
  // Mapped, the reduce-scatter adds without moving.
  const double moves = t.mapped && collective != Collective::all_gather ? ways - 1 : ways;
  return bound.rounds * t.round() + ways * blocks * t.slices_of(block) * t.link.overhead_s +
         moving(t, moves * blocks * block, t.all_cross) +
         (collective == Collective::all_gather ? 0 : adding(t, blocks * block));
}

double direct(const Terms& t, Collective collective) {
  const double others = t.n - 1, overhead = t.link.overhead_s, round = t.link.latency_s;
  const bool flat = collective == Collective::broadcast || collective == Collective::reduce;
  const double block = flat ? t.bytes : t.bytes / t.n;
  const double posts = others * t.slices_of(block) * overhead;
  const double move = moving(t, others * block, t.all_cross) * t.incast();
  if (!t.mapped) {
    const double once = round + posts + move;
    switch (collective) {
      case Collective::all_reduce:
        return 2 * once + adding(t, others * block);
      case Collective::reduce_scatter:
        return once + adding(t, others * block);
      case Collective::reduce:
        return once + adding(t, others * block);
      default:
        return once;
    }
  }
  // Mapped: a notice there and one back, whatever happens in between.
  const double notices = 2 * round + posts;
  switch (collective) {
    case Collective::all_reduce:
      // One pass: sums are handed out while in cache, at half the price of a copy from memory.
      return notices + posts + adding(t, others * block) + move / 2;
    case Collective::reduce_scatter:
    case Collective::reduce:
      return notices + adding(t, others * block);
    case Collective::broadcast:
    case Collective::scatter:
      return notices + moving(t, block, 1);  // receivers pull side by side
    default:
      return notices + move;
  }
}

/// A short message is stored into a mapped slot and read from there, cache line by cache line.
constexpr double kSlotPenalty = 5;

double one_shot(const Terms& t) {
  const double others = t.n - 1, bytes = others * t.bytes;
  const double move = moving(t, bytes, t.all_cross) * t.incast() * (t.mapped ? kSlotPenalty : 1);
  const double posts = 2 * others * t.slices_of(t.bytes) * t.link.overhead_s;  // and as many taken
  return t.link.latency_s + posts + move + adding(t, bytes);
}

/// One message each way, between the root and an owner, or an owner and all.
double scattered(const Terms& t, Collective collective) {
  const double others = t.n - 1, block = t.bytes / t.n;
  const double posts = 2 * others * t.slices_of(block) * t.link.overhead_s;
  const double move = moving(t, others * block, t.all_cross) * t.incast();
  const double add = collective == Collective::reduce ? adding(t, others * block) : 0;
  // Mapped, an owner reads and hands out in one pass.
  return 2 * t.link.latency_s + posts + add + (t.mapped ? move : 2 * move);
}

double two_level(const Terms& t, Collective collective) {
  const double hops = t.hosts - 1, inside = t.local > 1 ? 1 : 0;
  const double inside_byte = t.inside.s_per_byte;
  if (collective == Collective::broadcast) {
    const double slices = t.slices_of(t.bytes), slice = t.bytes / slices;
    const double stage = t.link.overhead_s + slice * t.link.s_per_byte;
    const double local = (t.local - 1) * (t.inside.overhead_s + slice * inside_byte);
    return hops * (t.link.latency_s + stage) + inside * t.inside.latency_s + local +
           (slices - 1) * std::max(stage, local);
  }
  // Per host 1/hosts of the vector a hop; the owners share the port. Inside, each rank sends what
  // it does not own, then an owner hands out what it does.
  const double part = t.bytes / t.hosts, block = part / t.owners;
  const double posts = t.owners * t.slices_of(block) * t.link.overhead_s;
  const double hop = t.link.latency_s + posts / t.owners + part * t.link.s_per_byte;
  const double ring_one_way = hops * hop;
  const double messages = (t.local - 1) * t.hosts;
  const double local = inside * (t.inside.latency_s + messages * t.inside.overhead_s +
                                 (t.local - 1) / t.owners * t.bytes * inside_byte);
  const double add = (hops > 0 ? adding(t, hops * block) : 0) +
                     inside * adding(t, (t.local - 1) * t.bytes / t.owners);
  const double one_way = ring_one_way + local;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * one_way + add;
    case Collective::reduce_scatter:
      return one_way + add;
    default:
      return one_way;
  }
}

}  // namespace

double predict_seconds(const PlanRequest& request, Algorithm algorithm, size_t slice_bytes) {
  if (request.ranks == 1) return 0;
  const Terms t = terms_of(request, slice_bytes);
  const Collective collective = request.collective;
  const Bound bound = bound_of({collective, algorithm, request.ranks, request.root, request.hosts});
  switch (algorithm) {
    case Algorithm::ring:
      return ring(t, collective);
    case Algorithm::tree:
      return tree(t, collective, bound.rounds);
    case Algorithm::recursive_doubling:
      return recursive_doubling(t, collective, bound);
    case Algorithm::halving_doubling:
      return halving_doubling(t, collective, bound);
    case Algorithm::direct:
      return direct(t, collective);
    case Algorithm::two_level:
      if (t.hosts == 1) return direct(t, collective);
      if (t.local == 1) return ring(t, collective);
      return two_level(t, collective);
    case Algorithm::one_shot:
      return one_shot(t);
    case Algorithm::scattered:
      return scattered(t, collective);
    case Algorithm::automatic:
      break;
  }
  return 0;
}

}  // namespace ropewalk

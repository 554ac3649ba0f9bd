// The ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009. Every rank sends to its right neighbour only. Broadcast and reduce run along
// the chain that the ring becomes when cut before the root; the engine's slices pipeline it.
#include <algorithm>
#include <numeric>

#include "schedule/builders.h"

namespace ropewalk {

void append_reduce_scatter_round(Builder& out, const Ring& ring, int t) {
  out.send_reduce(ring.block(ring.position - t), ring.next());
  out.recv_reduce(ring.block(ring.position - t - 1), ring.previous());
}

void append_all_gather_round(Builder& out, const Ring& ring, int t) {
  out.send_copy(ring.block(ring.position - t), ring.next());
  out.recv_copy(ring.block(ring.position - t - 1), ring.previous());
}

namespace {

Schedule chain_broadcast(const ScheduleKey& key, int rank) {
  const int n = key.ranks, place = wrap(rank - key.root, n);
  Builder out(key, rank, 1);
  if (place > 0) out.recv_copy(0, wrap(rank - 1, n));
  if (place < n - 1) out.send_copy(0, wrap(rank + 1, n));
  return out.take();
}

Schedule chain_reduce(const ScheduleKey& key, int rank) {
  const int n = key.ranks, place = wrap(rank - key.root, n);
  Builder out(key, rank, 1);
  if (place < n - 1) out.recv_reduce(0, wrap(rank + 1, n));
  if (place > 0) out.send_reduce(0, wrap(rank - 1, n));
  return out.take();
}

Schedule build(const ScheduleKey& key, int rank) {
  if (key.collective == Collective::broadcast) return chain_broadcast(key, rank);
  if (key.collective == Collective::reduce) return chain_reduce(key, rank);
  Ring ring{std::vector<int>(key.ranks), rank, 0};
  std::iota(ring.members.begin(), ring.members.end(), 0);
  Builder out(key, rank, key.ranks);
  if (key.collective != Collective::all_gather)
    for (int t = 1; t < key.ranks; ++t) append_reduce_scatter_round(out, ring, t);
  if (key.collective != Collective::reduce_scatter)
    for (int t = 0; t < key.ranks - 1; ++t) append_all_gather_round(out, ring, t);
  return out.take();
}

Bound bound(const ScheduleKey& key) {
  const double sent = moves_whole(key.collective) ? 1.0 : (key.ranks - 1.0) / key.ranks;
  return once_or_twice(key.collective, {sent, key.ranks - 1});
}

/// A chain through all ranks, slice by slice; the slowest hop sets the pace.
double predict_chain_s(const CostTerms& t, bool adds) {
  const double slices = t.slices_of(t.bytes), slice = t.bytes / slices;
  const double add = adds ? slice * t.add : 0;
  const double move = adds && t.mapped ? 0 : moving(t, slice, t.ring_cross);
  const double stage = t.link.overhead_s + move + add;
  const double between = t.hosts > 1 ? std::min(t.n - 1, (t.hosts - 1) * t.ring_cross) : t.n - 1;
  const double inside =
      t.inside.latency_s + t.inside.overhead_s + slice * t.inside.s_per_byte + add;
  return between * (t.round() + stage) + (t.n - 1 - between) * inside + (slices - 1) * stage;
}

/// An all_reduce. Blocks go around twice, and no link passes one faster than it can. The first
/// slice of a block is the longest: it sets how soon the next rank begins to send. A short second
/// one is there before the first is added, and is added before the first is sent on.
double described_s(const CostTerms& t) {
  const double block = t.bytes / t.n, slices = t.slices_of(block), slice = std::min(t.slice, block);
  const double last = block - (slices - 1) * slice, hops = t.n - 1;
  const double leaving = t.hosts > 1 ? t.hosts / t.n : 0, far = t.racks > 1 ? t.racks / t.n : 0;
  const double store = t.is_whole(block) ? slice : slice / 2;  // long ones are added where they lie
  const double hop =
      leaving * (t.near.overhead_s + t.near.latency_s) + (leaving - far) * passing(t, slice, 1, 0) +
      far * passing(t, slice, 1, 1) +
      (1 - leaving) * (t.inside.overhead_s + t.inside.latency_s + store * t.inside.s_per_byte);
  const bool is_before = slices == 2 && passing(t, last, 1, 1) < adding(t, slice);
  const double add = adding(t, slice) + (is_before ? leaving * adding(t, last) : 0);
  const double cpu = (t.is_whole(block) ? 1 : 2 + slices) * t.link.overhead_s;
  const double port = passing(t, block, 1, 1),
               inside = t.hosts > 1 ? 0 : block * t.inside.s_per_byte;
  const double start = t.link.overhead_s + t.link.latency_s;
  const double there = std::max({hop + add, port, cpu + adding(t, block)});
  const double back = std::max({hop, port, cpu + inside});
  return hops * (there + back) + (t.is_whole(block) ? 0 : start + t.link.overhead_s);
}

double predict_s(const CostTerms& t, Collective collective) {
  if (t.described && collective == Collective::all_reduce) return described_s(t);
  const double hops = t.n - 1;
  if (moves_whole(collective)) return predict_chain_s(t, collective == Collective::reduce);
  const double block = t.bytes / t.n;
  const double hop = t.round() + t.slices_of(block) * t.link.overhead_s;
  const double move = moving(t, block, t.ring_cross);
  const double reduce_scatter = hops * (hop + (t.mapped ? 0 : move)) + adding(t, hops * block);
  const double all_gather = hops * (hop + move);
  return (collective == Collective::all_gather ? 0 : reduce_scatter) +
         (collective == Collective::reduce_scatter ? 0 : all_gather);
}

}  // namespace

AlgorithmDescriptor ring_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, reduce_scatter, all_gather, broadcast, reduce},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = whole_or_by_rank,
          .partners = [](Collective, const Hosts& hosts) { return std::min(2, hosts.ranks() - 1); },
          .symmetry = symmetric_unless_rooted};
}

}  // namespace ropewalk

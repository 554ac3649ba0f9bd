// Direct: every rank talks to every other, without relays. In step i a rank sends to the rank i
// above and receives from the rank i below, so that no receiver is met by all senders at once.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// A reduce_scatter, an all_gather, or for an all_reduce both: all contributions to the own block
/// are taken in one after the other, and the sum then goes out to all. Where memory is mapped the
/// engine makes one pass over the data of both (engine/owner_program.h).
Schedule all_parts(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  out.own_parts();
  const bool adds = key.collective != Collective::all_gather;
  const bool hands_out = key.collective != Collective::reduce_scatter;
  for (int i = 1; adds && i < n; ++i) out.send_reduce(wrap(rank + i, n), wrap(rank + i, n));
  for (int i = 1; adds && i < n; ++i) out.recv_reduce(rank, wrap(rank - i, n));
  for (int i = 1; hands_out && i < n; ++i) out.send_copy(rank, wrap(rank + i, n));
  for (int i = 1; hands_out && i < n; ++i) out.recv_copy(wrap(rank - i, n), wrap(rank - i, n));
  return out.take();
}

Schedule all_to_all(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, 2 * n);
  out.receivers_own_parts();
  for (int i = 1; i < n; ++i) {
    out.send_copy(wrap(rank + i, n), wrap(rank + i, n));
    out.recv_copy(n + wrap(rank - i, n), wrap(rank - i, n));
  }
  return out.take();
}

/// Between the root and each other rank: the whole vector, or that rank's part.
Schedule with_root(const ScheduleKey& key, int rank) {
  const CollectiveTraits traits = traits_of(key.collective);
  Builder out(key, rank, traits.has_parts() ? key.ranks : 1);
  if (traits.has_parts())
    out.own_parts();
  else
    out.own_all(key.root);
  const auto move = [&](int other, int peer, bool sends) {
    const int block = traits.has_parts() ? other : 0;
    if (traits.reduces)
      sends ? out.send_reduce(block, peer) : out.recv_reduce(block, peer);
    else
      sends ? out.send_copy(block, peer) : out.recv_copy(block, peer);
  };
  if (rank != key.root) move(rank, key.root, traits.writes_on_root);
  for (int i = 1; rank == key.root && i < key.ranks; ++i)
    move(wrap(rank + i, key.ranks), wrap(rank + i, key.ranks), traits.reads_on_root);
  return out.take();
}

Schedule build(const ScheduleKey& key, int rank) {
  if (key.collective == Collective::all_to_all) return all_to_all(key, rank);
  return traits_of(key.collective).is_rooted() ? with_root(key, rank) : all_parts(key, rank);
}

Bound bound(const ScheduleKey& key) {
  const double n = key.ranks;
  switch (key.collective) {
    case Collective::broadcast:
      return {n - 1, 1};
    case Collective::reduce:
      return {1, 1};
    case Collective::gather:
      return {1 / n, 1};
    default:
      return once_or_twice(key.collective, {(n - 1) / n, 1});
  }
}

/// An all_reduce, in which CPUs tell of long messages before they send the first one.
double described_s(const CostTerms& t) {
  const double block = t.bytes / t.n, slices = t.slices_of(block), slice = block / slices;
  const double within = t.local - 1, between = t.n - t.local;
  const double control = between * t.near.overhead_s + within * t.inside.overhead_s;
  const double store = within * block * t.inside.s_per_byte;
  const double add = adding(t, (t.n - 1) * block);
  const double port = passing(t, block, t.local * between, t.rack_size * (t.n - t.rack_size));
  const double last = passing(t, slice, 1, 1);
  const double latency = t.hosts > 1 ? t.near.latency_s : t.inside.latency_s;
  const auto sent = [&](double cpu) { return std::max(cpu + last, port + t.near.overhead_s); };
  if (t.is_whole(block)) {
    const double once = sent(control + store) + latency;
    return std::max(control + store + add, once + adding(t, block)) + once;
  }
  // What of a block is still to come hides how long the first sums take; the last contribution is
  // handed out while it is added.
  const double posts = slices * control, hidden = (slices - 1) * passing(t, slice, 1, 1);
  const double turn = std::max(latency + adding(t, slice) - hidden, 0.0);
  const double granted = between > 0 ? t.near.overhead_s + t.near.latency_s : 0;
  const double last_add = adding(t, block - slice);
  return control + std::max(2 * control, granted) +
         std::max(control + posts + add - last_add, sent(posts) + turn) +
         std::max(sent(posts + store), last_add) + latency;
}

double predict_s(const CostTerms& t, Collective collective) {
  if (t.described && collective == Collective::all_reduce) return described_s(t);
  const double others = t.n - 1, overhead = t.link.overhead_s, round = t.link.latency_s;
  const double block = moves_whole(collective) ? t.bytes : t.bytes / t.n;
  const double posts = others * t.slices_of(block) * overhead;
  const double move = moving(t, others * block, t.all_cross) * t.incast(block);
  if (!t.mapped) {
    // Between hosts links move what was posted while the others are posted.
    const double once =
        round + (t.hosts > 1 ? overhead + std::max(posts - overhead, move) : posts + move);
    return (collective == Collective::all_reduce ? 2 * once : once) +
           (is_reduction(collective) ? adding(t, others * block) : 0);
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

}  // namespace

AlgorithmDescriptor direct_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather,
                          scatter, all_to_all},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = whole_or_by_rank,
          .symmetry = symmetric_unless_rooted};
}

}  // namespace ropewalk

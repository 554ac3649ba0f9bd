// Direct: every rank talks to every other, without relays. In step i a rank sends to the rank i
// above and receives from the rank i below, so that no receiver is met by all senders at once.
#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// All contributions to the own block are taken in one after the other, and the sum then goes out
/// to all. Where memory is mapped the engine makes one pass over the data of both
/// (engine/owner_program.h).
Schedule all_reduce(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  out.own_parts();
  for (int i = 1; i < n; ++i) out.send_reduce(wrap(rank + i, n), wrap(rank + i, n));
  for (int i = 1; i < n; ++i) out.recv_reduce(rank, wrap(rank - i, n));
  for (int i = 1; i < n; ++i) out.send_copy(rank, wrap(rank + i, n));
  for (int i = 1; i < n; ++i) out.recv_copy(wrap(rank - i, n), wrap(rank - i, n));
  return out.take();
}

Schedule reduce_scatter(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  out.own_parts();
  for (int i = 1; i < n; ++i) out.send_reduce(wrap(rank + i, n), wrap(rank + i, n));
  for (int i = 1; i < n; ++i) out.recv_reduce(rank, wrap(rank - i, n));
  return out.take();
}

Schedule all_gather(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  out.own_parts();
  for (int i = 1; i < n; ++i) out.send_copy(rank, wrap(rank + i, n));
  for (int i = 1; i < n; ++i) out.recv_copy(wrap(rank - i, n), wrap(rank - i, n));
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

Schedule broadcast(const ScheduleKey& key, int rank) {
  Builder out(key, rank, 1);
  out.own_all(key.root);
  if (rank != key.root)
    out.recv_copy(0, key.root);
  else
    for (int i = 1; i < key.ranks; ++i) out.send_copy(0, wrap(rank + i, key.ranks));
  return out.take();
}

Schedule reduce(const ScheduleKey& key, int rank) {
  Builder out(key, rank, 1);
  out.own_all(key.root);
  if (rank != key.root)
    out.send_reduce(0, key.root);
  else
    for (int i = 1; i < key.ranks; ++i) out.recv_reduce(0, wrap(rank + i, key.ranks));
  return out.take();
}

Schedule gather(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  out.own_parts();
  if (rank != key.root)
    out.send_copy(rank, key.root);
  else
    for (int i = 1; i < n; ++i) out.recv_copy(wrap(rank + i, n), wrap(rank + i, n));
  return out.take();
}

Schedule scatter(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  out.own_parts();
  if (rank != key.root)
    out.recv_copy(rank, key.root);
  else
    for (int i = 1; i < n; ++i) out.send_copy(wrap(rank + i, n), wrap(rank + i, n));
  return out.take();
}

Schedule build(const ScheduleKey& key, int rank) {
  switch (key.collective) {
    case Collective::reduce_scatter:
      return reduce_scatter(key, rank);
    case Collective::all_gather:
      return all_gather(key, rank);
    case Collective::all_to_all:
      return all_to_all(key, rank);
    case Collective::broadcast:
      return broadcast(key, rank);
    case Collective::reduce:
      return reduce(key, rank);
    case Collective::gather:
      return gather(key, rank);
    case Collective::scatter:
      return scatter(key, rank);
    default:
      return all_reduce(key, rank);
  }
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

double predict_s(const CostTerms& t, Collective collective) {
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

int blocks(Collective collective, const Hosts& hosts) {
  const bool flat = collective == Collective::broadcast || collective == Collective::reduce;
  return flat ? 1 : hosts.ranks();
}

}  // namespace

AlgorithmDescriptor direct_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather,
                          scatter, all_to_all},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = blocks};
}

}  // namespace ropewalk

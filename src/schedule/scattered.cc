// Scattered: the vector is cut into a part per rank, and each rank serves its part to, or from, all
// others: a broadcast is a scatter and an all-gather, a reduce is a reduce-scatter and a gather
// (Barnett et al., "Global combine on mesh architectures with wormhole routing", 1993; van de
// Geijn), every part going straight between its owner and the others. So all ranks share the work
// that `direct` leaves to the root.
#include "schedule/builders.h"

namespace ropewalk {
namespace {

Schedule broadcast(const ScheduleKey& key, int rank) {
  const int n = key.ranks, root = key.root;
  Builder out(key, rank, n);
  out.own_parts();
  if (rank == root)
    for (int i = 1; i < n; ++i) out.send_copy(wrap(rank + i, n), wrap(rank + i, n));
  else
    out.recv_copy(rank, root);
  for (int i = 1; i < n; ++i)
    if (wrap(rank + i, n) != root) out.send_copy(rank, wrap(rank + i, n));
  if (rank != root)
    for (int i = 1; i < n; ++i) out.recv_copy(wrap(rank - i, n), wrap(rank - i, n));
  return out.take();
}

Schedule reduce(const ScheduleKey& key, int rank) {
  const int n = key.ranks, root = key.root;
  Builder out(key, rank, n);
  out.own_parts();
  for (int i = 1; i < n; ++i) out.send_reduce(wrap(rank + i, n), wrap(rank + i, n));
  for (int i = 1; i < n; ++i) out.recv_reduce(rank, wrap(rank - i, n));
  if (rank != root) out.send_copy(rank, root);
  if (rank == root)
    for (int i = 1; i < n; ++i) out.recv_copy(wrap(rank - i, n), wrap(rank - i, n));
  return out.take();
}

Schedule build(const ScheduleKey& key, int rank) {
  return key.collective == Collective::broadcast ? broadcast(key, rank) : reduce(key, rank);
}

/// The root sends all parts except its own, and its own to all.
Bound bound(const ScheduleKey& key) {
  const double n = key.ranks;
  return {(key.collective == Collective::broadcast ? 2 * (n - 1) : n) / n, 2};
}

/// One message each way, between the root and an owner, or an owner and all.
double predict_s(const CostTerms& t, Collective collective) {
  const double others = t.n - 1, block = t.bytes / t.n;
  const double posts = 2 * others * t.slices_of(block) * t.link.overhead_s;
  // Owners send to all while the root still sends to them: short blocks collide, too.
  const double move = moving(t, others * block, t.all_cross) * t.incast();
  const double add = collective == Collective::reduce ? adding(t, others * block) : 0;
  // Mapped, an owner reads and hands out in one pass.
  return 2 * t.link.latency_s + posts + add + (t.mapped ? move : 2 * move);
}

}  // namespace

AlgorithmDescriptor scattered_algorithm() {
  using enum Collective;
  return {
      .collectives = {broadcast, reduce}, .build = build, .bound = bound, .predict_s = predict_s};
}

}  // namespace ropewalk

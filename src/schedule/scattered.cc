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

}  // namespace

Schedule build_scattered(const ScheduleKey& key, int rank) {
  return key.collective == Collective::broadcast ? broadcast(key, rank) : reduce(key, rank);
}

}  // namespace ropewalk

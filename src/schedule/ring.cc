// The ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009. Every rank sends to its right neighbour only. Broadcast and reduce run along
// the chain that the ring becomes when cut before the root; the engine's slices pipeline it.
#include <numeric>

#include "schedule/builders.h"

namespace ropewalk {

void append_ring_reduce_scatter(Builder& out, const Ring& ring) {
  for (int t = 1; t < ring.size(); ++t) {
    out.send_reduce(ring.block(ring.position - t), ring.next());
    out.recv_reduce(ring.block(ring.position - t - 1), ring.previous());
  }
}

void append_ring_all_gather(Builder& out, const Ring& ring) {
  for (int t = 0; t < ring.size() - 1; ++t) {
    out.send_copy(ring.block(ring.position - t), ring.next());
    out.recv_copy(ring.block(ring.position - t - 1), ring.previous());
  }
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

}  // namespace

Schedule build_ring(const ScheduleKey& key, int rank) {
  if (key.collective == Collective::broadcast) return chain_broadcast(key, rank);
  if (key.collective == Collective::reduce) return chain_reduce(key, rank);
  Ring ring{std::vector<int>(static_cast<size_t>(key.ranks)), rank, 0};
  std::iota(ring.members.begin(), ring.members.end(), 0);
  Builder out(key, rank, key.ranks);
  if (key.collective != Collective::all_gather) append_ring_reduce_scatter(out, ring);
  if (key.collective != Collective::reduce_scatter) append_ring_all_gather(out, ring);
  return out.take();
}

}  // namespace ropewalk

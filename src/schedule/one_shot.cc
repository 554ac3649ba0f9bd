// One shot: every rank sends its whole vector to every other and adds up what it gets. One round:
// the shortest way for vectors that are shorter than a message's overhead. All ranks add in rank
// order, so that all end with the same bits: what lies below the own rank is gathered in scratch
// first. (Called so in MSCCL++ and TensorRT-LLM; "linear" or "naive" in the MPI literature.)
#include "schedule/builders.h"

namespace ropewalk {

Schedule build_one_shot(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  constexpr int kSum = 0, kBelow = 1;
  Builder out(key, rank, 1, 1);
  for (int i = 1; i < n; ++i) {
    if (rank == 0)
      out.send_copy(kSum, i);
    else
      out.send_reduce(kSum, wrap(rank + i, n));
  }
  if (rank > 0) out.recv_copy(kBelow, 0);
  for (int below = 1; below < rank; ++below) out.recv_reduce(kBelow, below);
  if (rank > 0) out.reduce(kSum, kBelow);
  for (int above = rank + 1; above < n; ++above) out.recv_reduce(kSum, above);
  return out.take();
}

}  // namespace ropewalk

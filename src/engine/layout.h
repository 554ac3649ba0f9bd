// Where the blocks of a call lie in the caller's memory.
#pragma once

#include <cstddef>
#include <vector>

#include "ropewalk/communicator.h"
#include "schedule/schedule.h"

namespace ropewalk {

/// One data block of this rank. `in` is null where the rank contributes nothing to the block, `out`
/// where the caller wants nothing of it.
struct BlockMemory {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  size_t elements = 0;
};

/// One entry per data block of `schedule` (all ranks agree on the lengths).
std::vector<BlockMemory> lay_out(const Call& call, const Schedule& schedule);

/// Whether each rank's input is scaled first; whether the sum is divided by the number of ranks.
inline bool scales(const Call& call) {
  return is_reduction(call.collective) && call.op.kind == ReduceKind::scaled_sum;
}
inline bool averages(const Call& call) {
  return is_reduction(call.collective) && call.op.kind == ReduceKind::avg;
}

/// Whether what comes in overwrites what is still to be sent: all_to_all in place. The input is
/// saved first then.
bool overwrites_input(const Call& call);

/// Bytes of the whole vector that the collective moves, equal on all ranks (all_to_all_v: of this
/// rank's input): what the planner looks at.
size_t total_bytes(const Call& call, int ranks);

/// Throws Error(invalid_argument) where the call makes no sense by itself.
void check_call(const Call& call, int rank, int ranks);

}  // namespace ropewalk

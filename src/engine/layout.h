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

/// Whether what comes in overwrites what is still to be sent: all_to_all in place. The input is
/// saved first then.
bool overwrites_input(const Call& call);
/// Bytes of the input that are saved; 0 where it is not overwritten.
size_t saved_bytes(const Call& call, int rank, int ranks);

/// Bytes of the whole vector that the collective moves, equal on all ranks (all_to_all_v: of this
/// rank's input): what the planner looks at.
size_t total_bytes(const Call& call, int ranks);

/// Begin of part `i` of `parts` nearly equal parts of `count` elements; begins are multiples of
/// `grain` elements where parts are long enough.
size_t part_begin(size_t count, size_t parts, size_t i, size_t grain);

/// Throws Error(invalid_argument) where the call makes no sense by itself.
void check_call(const Call& call, int rank, int ranks);

}  // namespace ropewalk

// Where the ranks of an asynchronous policy meet: what each was called for, and whether all agree.
#pragma once

#include <cstdint>
#include <span>

#include "ropewalk/communicator.h"

namespace ropewalk {

enum class EaOperation : int64_t {
  synchronize_center,
  synchronize_parameters,
  center,
  leave,
  serve
};

/// What ranks tell each other: trivially copyable, without padding.
struct EaCall {
  EaOperation operation;
  uint64_t elements;
  int64_t servers;
  uint64_t alpha;  // its bits
};
static_assert(sizeof(EaCall) == 4 * sizeof(int64_t));

/// Collective. Waits until every rank has come, as long as they live, and returns what they have
/// come for: those who serve learn from the others, of whom there must be one. Throws the same
/// Error(mismatch) on every rank where they do not agree.
EaCall meet_all(Communicator& comm, const EaCall& own);

}  // namespace ropewalk

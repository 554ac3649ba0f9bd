// Where the ranks of an AsyncEa meet: what each has come for, and whether all agree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ropewalk/communicator.h"

namespace ropewalk {

enum class EaOperation : int64_t {
  synchronize_center,
  synchronize_parameters,
  center,
  leave,
  serve,
  resume
};

/// Which center, how it was cut, and of how many ranks' communicator. All have met before a rank
/// has the next one, so of two the later is what all go on with.
struct CenterId {
  int64_t generation = -1;  // -1: none
  int64_t owners = 0;
  int64_t ranks = 0;
};

/// What ranks tell each other: trivially copyable, without padding.
struct EaCall {
  static constexpr uint64_t kAnyElements = ~uint64_t{0};

  EaOperation operation;
  uint64_t elements;  // a server that does not know: kAnyElements
  int64_t servers;    // AsyncEaOptions::servers
  uint64_t alpha;     // its bits
  int64_t is_server;
  int64_t has_state;  // parameters, of a worker, that may become the center
  CenterId center;    // that the rank has
};
static_assert(sizeof(EaCall) == 9 * sizeof(int64_t));

/// The same on every rank.
struct Meeting {
  EaOperation operation;  // of those who work
  size_t elements;
  int servers;
  CenterId center;   // the latest
  int state_holder;  // the first worker that has state; -1: none
};

/// Collective. Waits until every rank has come, as long as they live, and returns what they have
/// come for: those who serve learn from the others. Throws the same Error(mismatch) on every rank
/// where they do not agree, and Error(invalid_argument) where nobody works.
Meeting meet_all(Communicator& comm, const EaCall& own);

}  // namespace ropewalk

// Whose state all ranks of an epoch go on with. A rank has one where it was there as the job began,
// since initial parameters are then the job's own, where `resume` or a synchronization has given it
// one, or where its caller declares it. Newcomers have none: they have a vote before they are given
// anything, so those who had it may all die before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective; throws the same on every rank, unless one dies meanwhile.
[[noreturn]] inline void throw_nobody_has_state(Communicator& comm, const char* policy) {
  try {
    comm.barrier();         // all know it before one ends because of it
  } catch (const Error&) {  // this rank knows it
  }
  throw Error(ErrorCode::unavailable, policy,
              "no policy here has the parameters: all who had them have died before newcomers got "
              "them, or every rank has made its policy anew in this epoch",
              "load a checkpoint, or keep what this rank has, call declare_state and resume again; "
              "or start the job anew");
}

struct StateHolder {
  int rank = 0;
  int64_t progress = 0;
};

/// Collective. The rank that has come farthest, of those that have state, and the lowest of equals;
/// the same on every rank. `progress` is not negative. Throws the same Error(unavailable) on every
/// rank where nobody has state.
inline StateHolder find_state(Communicator& comm, const char* policy, bool has_state,
                              int64_t progress) {
  constexpr int64_t kNone = -1;
  const int64_t own = has_state ? progress : kNone;
  std::vector<int64_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(std::span(&own, 1), all);
  const auto most = std::ranges::max_element(all);
  if (*most == kNone) throw_nobody_has_state(comm, policy);
  return {static_cast<int>(most - all.begin()), *most};
}

}  // namespace ropewalk

// The steps of the ranks that are run, with what each waits for: what simulate_call.cc works
// through.
#pragma once

#include <span>

#include "simulate/rank_symmetry.h"
#include "simulate/rounds.h"
#include "simulate/simulate_call.h"

namespace ropewalk {

/// A stream of the engine (peer, lane, direction) of a rank that is run.
struct SimulatedStream {
  uint32_t rank;  // of those that are run
  int32_t peer;   // as the call numbers ranks
  uint8_t lane;
  bool sending;
  bool inside = false;                      // a host
  uint32_t first = 0, count = 0;            // into SimulatedSteps::in_streams
  uint32_t partner = 0;                     // the stream at the other end
  uint32_t path_first = 0, path_count = 0;  // into SimulatedSteps::paths; of sending ones
  int64_t latency_ps = 0;                   // of the first byte, or of a notice
};

struct SimulatedStep {
  StepOp op;
  int32_t block;
  uint32_t stream = 0;   // of local steps nothing
  uint32_t partner = 0;  // the step at the other end
};

/// Steps of all ranks that are run, one after the other.
struct SimulatedSteps {
  uint64_t ranks_each = 1;           // for how many ranks each stands
  std::vector<uint32_t> step_first;  // by rank; and the end
  std::vector<uint32_t> class_of;    // by rank: the first of those that behave alike
  std::vector<SimulatedStep> steps;
  std::vector<SimulatedStream> streams;
  std::vector<uint32_t> in_streams;  // steps
  std::vector<int32_t> paths;        // LinkWays that stand for those like them
  // By step: those that come before it, slice by slice; a grant waits for the first of them alone.
  StepDeps deps;
  std::vector<uint32_t> after_first, after;  // the other way round, and such as are woken alone
  std::vector<uint32_t> rank_of;             // by step
  std::vector<RepeatedRounds> repeated;      // steps of each rank

  uint32_t ranks() const { return static_cast<uint32_t>(class_of.size()); }
  uint32_t local(uint32_t step) const { return step - step_first[rank_of[step]]; }
  /// The same step of the first rank that behaves alike.
  uint32_t alike(uint32_t step) const {
    const uint32_t rank = rank_of[step];
    return step - step_first[rank] + step_first[class_of[rank]];
  }
};

struct StepsWanted {
  bool in_list_order;  // each step waits for the one before it (the sequential executor)
  uint64_t steps_max;
  /// Of repeated ones, for each rank that is run: the others are left out. 0: all.
  uint32_t rounds = 0;
};

/// Throws Error(exhausted) where there are more than are wanted.
SimulatedSteps steps_of(Routes& routes, const CallToSimulate& call, const StepsWanted& wanted);

}  // namespace ropewalk

// Times a schedule: all ranks run it, event by event, on links that cost what the model says.
//
// A block is cut into slices, which are pipelined as in the engine: a step works on a slice as soon
// as the steps it waits for have finished that slice. Ports and each rank's adding are serial.
// FIFOs never fill up.
#pragma once

#include "schedule/cost.h"
#include "schedule/schedule.h"

namespace ropewalk {

struct Simulation {
  CostModel cost;
  double bytes = 0;                // the whole vector: all parts together; unit as in Bound
  size_t slice_bytes = 256 << 10;  // largest slice; at least 1
  std::vector<int> hosts;          // host number of each rank; empty: every rank its own
};

struct SimulationReport {
  double seconds = 0;     // until the last rank is done
  uint64_t messages = 0;  // slices sent, all ranks
  double bytes_between_hosts = 0;
};

/// Tens of thousands of ranks where a schedule is short (trees, doubling), a few thousand for
/// rings. Throws Error(exhausted) where steps times slices exceed kSimulatedSlicesMax.
SimulationReport simulate(const ScheduleKey& key, const Simulation& simulation);
inline constexpr uint64_t kSimulatedSlicesMax = 200'000'000;

}  // namespace ropewalk

// What schedules that are made for a described network take there.
#pragma once

#include <string>

#include "simulate/plan.h"
#include "synthesize/synthesize.h"

namespace ropewalk {

/// Unasked schedules are made for so many hosts and ranks, which takes a second or less.
inline constexpr int kUnaskedHostsMax = 32, kUnaskedRanksMax = 128;
inline bool is_made_unasked(const Network& network) {
  return network.host_count() <= kUnaskedHostsMax && network.ranks() <= kUnaskedRanksMax;
}

struct SimulatedSynthesis {
  Synthesized made;
  double made_s = 0;  // that it took to make them, and to prove them
  size_t slice_bytes = 0;
  SimulatedCall call;
  std::string why_not;  // they were not made, or not simulated; empty: they were
};

SimulatedSynthesis simulate_synthesized(Routes& routes, const PlanRequest& request,
                                        const SimulationWay& way = {});

/// `request`: of the network that is described, as request_on makes it.
size_t tree_slice_bytes(const PlanRequest& request, const Synthesized& made);
struct SimulatedSlices {
  size_t slice_bytes = 0;
  bool shorter = false;  // than tree_slice_bytes says
  SimulatedCall call;
};
/// As tree_slice_bytes says, or in shorter ones that are tried and take less: what is handed on
/// goes on sooner, and every slice takes the CPUs' time and, of a reduction, its place in a window.
/// Throws what simulate_call throws.
SimulatedSlices simulate_slices(Routes& routes, const PlanRequest& request, const Synthesized& made,
                                const SimulationWay& way = {});
/// The call, which refers to the schedules in `made`.
CallToSimulate call_for(const PlanRequest& request, const Synthesized& made, size_t slice_bytes);

}  // namespace ropewalk

// What schedules that are made for a described network take there.
#pragma once

#include <string>

#include "simulate/plan.h"
#include "synthesize/synthesize.h"

namespace ropewalk {

/// Unasked schedules are made for so many hosts and ranks, which takes a second or less.
inline constexpr int kUnaskedHostsMax = 32, kUnaskedRanksMax = 128;
inline bool synthesizes_by_default(const Network& network) {
  return network.host_count() <= kUnaskedHostsMax && network.ranks() <= kUnaskedRanksMax;
}

struct SimulatedSynthesis {
  Synthesized made;
  std::vector<TreeMessage> tree_messages = {};  // of its forest, once: as they go outwards
  int trees = 0;                                // in it, each of an equal part of the vector
  double made_s = 0;                            // that it took to make them, and to prove them
  size_t slice_bytes = 0;
  SimulatedCall call;
  std::string why_not;  // they were not made, or not simulated; empty: they were
};

/// How often the forest is repeated for such a call: so often that blocks are some slices long, as
/// short messages cost too much.
int chunks_for(const PlanRequest& request, const Forest& forest);
/// How many of them ranks may be ahead of others: more where it takes longer through the trees and
/// back. The same for all calls.
int chunks_ahead_for(const PlanRequest& request, const Forest& forest);
SimulatedSynthesis simulate_synthesized(Routes& routes, const PlanRequest& request,
                                        const SimulationWay& way = {});
/// Adds to what was made, and is in `simulated`, what it takes.
void simulate_made(Routes& routes, const PlanRequest& request, SimulatedSynthesis& simulated,
                   const SimulationWay& way = {});
/// `request`: of the network that is described, as request_on makes it.
size_t tree_slice_bytes(const PlanRequest& request, const Synthesized& made);
/// The call, which refers to the schedules in `made`.
CallToSimulate call_for(const PlanRequest& request, const Synthesized& made);

}  // namespace ropewalk

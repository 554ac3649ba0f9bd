// What schedules that are made for a described network take there.
#pragma once

#include <string_view>

#include "simulate/plan.h"
#include "synthesize/synthesize.h"

namespace ropewalk {

/// Beside the names of algorithms.
inline constexpr std::string_view kSynthesizedName = "synthesized";

struct SimulatedSynthesis {
  Synthesized made;
  double made_s = 0;  // that it took to make them, and to prove them
  size_t slice_bytes = 0;
  SimulatedCall call;
  std::string why_not;  // they were not made, or not simulated; empty: they were
};

SimulatedSynthesis simulate_synthesized(Routes& routes, const PlanRequest& request,
                                        const SimulationWay& way = {});
/// The call, which refers to the schedules in `made`.
CallToSimulate call_for(const PlanRequest& request, const Synthesized& made);

}  // namespace ropewalk

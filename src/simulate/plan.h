// What the planner would choose on a described network, and what each algorithm takes there when
// it is simulated.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "simulate/simulate_call.h"

namespace ropewalk {

/// Of a call on all ranks. Racks are hosts at one switch, where its uplinks carry less than they
/// can send.
PlanRequest request_on(const Network& network, Collective collective, int root, size_t bytes);

/// Whether one switch joins hosts that are alike, in ranks and adapters: then algorithms need no
/// more than they know.
bool is_uniform(const Network& network);

struct SimulatedAlgorithm {
  Algorithm algorithm = Algorithm::ring;
  size_t slice_bytes = 0;
  double planned_s = 0;  // as the planner's closed form says
  SimulatedCall call;
  std::string why_not;  // it was not simulated; empty: it was
};

/// As in CallToSimulate; `in_list_order`: messages are whole, too.
struct SimulationWay {
  bool event_by_event = false;
  bool in_list_order = false;
};

/// Of all that the planner considers, or the one that `request` forces; fastest first. `on_begin`
/// is told of each before it is simulated.
std::vector<SimulatedAlgorithm> simulate_algorithms(
    Routes& routes, const PlanRequest& request, const SimulationWay& way = {},
    const std::function<void(Algorithm)>& on_begin = {});
/// What is best of all that the planner considers, as far as that is known at little expense:
/// those are simulated that have few messages, and of the others the closed form counts. For
/// callers that ask about a network, rather than run a call.
Algorithm choose_on(Routes& routes, const PlanRequest& asked);
/// So many steps, times slices, of an algorithm are few: at most some 20 ms.
inline constexpr uint64_t kPlannedMessagesMax = 100'000;
/// To build the schedules of more takes longer than that.
inline constexpr int kPlannedRanksMax = 2048;
/// What is best of so many bytes is best of more.
inline constexpr size_t kPlannedBytesMax = 256 << 20;

/// The one, with slices as the engine would have them.
CallToSimulate call_for(const PlanRequest& request, Algorithm algorithm,
                        const SimulationWay& way = {});

}  // namespace ropewalk

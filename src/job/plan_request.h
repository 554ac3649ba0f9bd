// From a call to the planner's request and its answer: what communicators run, and what
// `ropewalk explain` tells, from the same code.
#pragma once

#include <vector>

#include "bootstrap/config.h"
#include "job/costs.h"
#include "planner/planner.h"
#include "ropewalk/communicator.h"
#include "topology/rows.h"

namespace ropewalk {

/// True where every rank can map every other's memory. `hosts`: the number of each rank's host.
bool all_mapped(const TransportChoice& transports, const std::vector<int>& hosts);
/// ROPEWALK_SLICE_BYTES, as slices can be.
size_t slice_bytes_max(const Config& config);

/// Made only of what all ranks know alike.
PlanRequest plan_request(const Call& call, const Config& config, const TransportChoice& transports,
                         const Placement& placement, const Costs& costs);
/// The planner's decision, with slices as the engine can run them. In a job of one there is nothing
/// to choose from, and no candidate. Throws what `choose` throws.
PlanDecision plan_for(const Call& call, const Config& config, const TransportChoice& transports,
                      const Placement& placement, const Costs& costs);

}  // namespace ropewalk

// Where a job's costs come from: a tuning profile, else the probes, else the network's description,
// else what the system tells of adapters, else constants. Rank 0 decides; its record says what the
// others have to take part in.
#pragma once

#include <string>
#include <vector>

#include "job/costs.h"
#include "job/job.h"
#include "job/tuning.h"
#include "network/network.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective, and equal on all ranks. Throws what broadcast, recv and all_reduce throw.
Costs find_costs(Communicator& communicator, const Job& job);
/// What those of a communicator, whose ranks are on `hosts`, say of its ranks `ranks`, of which
/// `part` is known.
Costs costs_of_part(const Costs& costs, const std::vector<int>& hosts,
                    const std::vector<int>& ranks, const TunedJob& part);
/// What is described, as a job numbers its ranks: of hosts `hosts`, by rank, with these names
/// (network/job_hosts.h). Where it says nothing of messages, they cost what `costs` has measured.
/// Throws Error(invalid_argument) where it does not serve. Pure.
Network network_for(const Network& described, const std::vector<int>& hosts,
                    const std::vector<std::string>& names, const Costs& costs);
/// What `costs.network`, if there is one, says of links between hosts: racks; the rest where
/// nothing was measured.
void apply_description(Costs& costs);
/// At level info, for rank 0.
void log_costs(const Costs& costs);

}  // namespace ropewalk

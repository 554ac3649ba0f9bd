// Where a job's costs come from: a tuning profile, else the probes, else what the system tells of
// adapters, else constants. Rank 0 decides; its record says what the others have to take part in.
#pragma once

#include "job/costs.h"
#include "job/job.h"
#include "job/tuning.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// What a tuning profile can be asked about it.
TunedJob tuned_job(const Job& job);

/// Collective, and equal on all ranks. Throws what broadcast, recv and all_reduce throw.
Costs find_costs(Communicator& communicator, const Job& job);

}  // namespace ropewalk

// The cost probe: measures what links between hosts cost, as a job starts. It takes 50 ms at most,
// or four round trips where these take longer, and moves at most 4 MiB a rank; twice that where the
// number of hosts is odd.
//
// The first rank of each host measures, against the host beside its own (0 with 1, 2 with 3, ...),
// all pairs at once: then switches that carry less than their hosts together show it. The slowest
// link counts, since it is what every collective waits for. Where the number of hosts is odd, the
// last one measures against the first afterwards. An all_reduce spreads what is slowest.
#pragma once

#include <vector>

#include "job/costs.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective, and equal on all ranks: `otherwise`, except what was measured between hosts.
/// `hosts`: the number of each rank's host. Throws what recv and all_reduce throw.
Costs measure_costs(Communicator& communicator, const std::vector<int>& hosts, Costs otherwise);

}  // namespace ropewalk

// The cost probe: measures what links between hosts cost, as a job starts. It takes 50 ms at most,
// or four round trips where these take longer, and moves at most 4 MiB a rank; twice that where the
// number of hosts is odd.
//
// The first rank of each host measures, against the host beside its own (0 with 1, 2 with 3, ...),
// all pairs at once: then switches that carry less than their hosts together show it. The slowest
// link counts, since it is what every collective waits for. Where the number of hosts is odd, the
// last one measures against the first afterwards. What was measured is gathered along a binomial
// tree of hosts at rank 0, which decides; all ranks hear it. Whether there is a probe at all is
// rank 0's to say, too: its setting counts.
#pragma once

#include <vector>

#include "job/costs.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective, and equal on all ranks: what rank 0 takes the costs for. That is `otherwise`, except
/// what it has had measured between hosts, where `measures` is true on rank 0. `hosts`: the number
/// of each rank's host. Throws what send and recv throw.
Costs agree_on_costs(Communicator& communicator, const std::vector<int>& hosts,
                     const Costs& otherwise, bool measures);

}  // namespace ropewalk

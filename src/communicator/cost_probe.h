// The cost probe: measures what links between hosts cost, as a job starts. It takes 50 ms at most,
// or some round trips where these take longer, and moves at most 8 MiB a rank.
//
// The first rank of each host measures the links of the ring of hosts, whose slowest one a ring
// waits for: first 0 with 1, 2 with 3, ..., all at once, so that switches that carry less than
// their hosts together show it; then, the rate alone, 1 with 2, 3 with 4, ...; where the number of
// hosts is odd, the last with the first afterwards. An all_reduce spreads what is slowest. Links
// that are much slower than others, once more when asked again, part racks: groups of hosts, or one
// slow host.
#pragma once

#include <vector>

#include "job/costs.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective, and equal on all ranks: `otherwise`, except what was measured between hosts.
/// `hosts`: the number of each rank's host. Throws what recv and all_reduce throw.
Costs measure_costs(Communicator& communicator, const std::vector<int>& hosts, Costs otherwise);

/// By host, its rack. `slow`: by host, whether the link to the next one, and from the last to the
/// first, is one. Empty where there is one rack.
std::vector<int> racks_between(const std::vector<bool>& slow);

}  // namespace ropewalk

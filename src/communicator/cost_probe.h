// The cost probe: measures what links between hosts cost, as a job starts. It takes 50 ms at most,
// or some round trips where these take longer, and moves at most 8 MiB a rank.
//
// The first rank of each host measures the links of the ring of hosts: first 0 with 1, 2 with 3,
// ..., all at once, so that switches that carry less than their hosts together show it; then, the
// rate alone, 1 with 2, 3 with 4, ...; where the number of hosts is odd, the last with the first
// afterwards. An all_reduce spreads what each has found. The median counts: what takes longest is
// often a link that another process has held up. Links that are much slower than others, once more
// when asked again, part racks: groups of hosts, or one slow host, which then sets the rate.
#pragma once

#include <vector>

#include "job/costs.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// Collective, and equal on all ranks: `otherwise`, except what was measured between hosts.
/// `hosts`: the number of each rank's host. Throws what recv and all_reduce throw.
Costs measure_costs(Communicator& communicator, const std::vector<int>& hosts, Costs otherwise);

/// By link, of one at least; 0: not known. The upper median, or the most where that is many times
/// as much.
double latency_of(const std::vector<double>& links);
/// By host, its rack. `slow`: by host, whether the link to the next one, and from the last to the
/// first, is one. Empty where there is one rack.
std::vector<int> racks_between(const std::vector<bool>& slow);

}  // namespace ropewalk

// Which CPU each rank of a host is bound to.
#pragma once

#include <vector>

namespace ropewalk::tools {

/// One CPU for each of `ranks` ranks among those this process may use: every core once, then, where
/// there are more ranks than cores, the cores' other hardware threads. Empty where there are more
/// ranks than CPUs: such ranks are better left to the scheduler.
std::vector<int> cpus_for_ranks(int ranks);

/// Binds the calling process; false where the system refuses.
bool bind_process_to_cpu(int cpu);

}  // namespace ropewalk::tools

// One rank of a point-to-point benchmark.
#pragma once

#include "tools/bench/p2p_options.h"

namespace ropewalk::tools {

/// Joins the job; ranks 0 and 1 measure every size and check what arrives, rank 0 prints, others
/// wait for them. Returns the exit status: 1 where something wrong arrived. Throws Error.
int run_p2p_rank(const P2pOptions& options);

}  // namespace ropewalk::tools

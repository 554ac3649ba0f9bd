// One rank of a benchmark.
#pragma once

#include "tools/bench/options.h"

namespace ropewalk::tools {

/// Joins the job, measures every size and checks results; rank 0 prints. Collective. Returns the
/// exit status: 1 where a result was wrong. Throws Error.
int run_bench_rank(const BenchOptions& options);

}  // namespace ropewalk::tools

// One rank of a benchmark.
#pragma once

#include "ropewalk/communicator.h"
#include "tools/bench/options.h"
#include "tools/bench/report.h"

namespace ropewalk::tools {

/// Joins the job, measures every size and checks results; rank 0 prints. Collective. Returns the
/// exit status: 1 where a result was wrong. Throws Error.
int run_bench_rank(const BenchOptions& options);

/// Before any rank allocates: on every host what its ranks need for the largest size must be there.
/// Collective. Throws Error(exhausted).
void check_memory_of_all(Communicator& comm, const BenchOptions& options);

/// Measures `options.kind` with one size, and checks the result; equal on all ranks. `barrier`: a
/// plan of the communicator. Collective. Throws Error.
BenchResult measure_size(Communicator& comm, const BenchOptions& options, Plan& barrier,
                         size_t bytes);
Plan plan_barrier(Communicator& comm);

}  // namespace ropewalk::tools

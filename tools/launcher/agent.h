// The part of a launcher that runs on each host: starts ranks of that host, passes their output on,
// and sees to it that none of their processes outlives the job or the launcher.
//
// The launcher forks an agent for its own machine and starts `ropewalk run-agent` by ssh on others.
// When its input ends, for whatever reason, the agent kills everything it started.
#pragma once

#include "base/unique_fd.h"

namespace ropewalk::tools {

/// So many descriptors an agent needs, and for each of its ranks.
inline constexpr int kAgentDescriptors = 20, kDescriptorsPerRank = 3;

/// Runs one job's part, told over `in`, answered over `out` (frames.h). `rank0_stdin`, where open,
/// becomes rank 0's input. Returns the process's exit status. Takes the process over: session,
/// signal mask, children; one thread only.
int run_agent(UniqueFd in, UniqueFd out, UniqueFd rank0_stdin);

}  // namespace ropewalk::tools

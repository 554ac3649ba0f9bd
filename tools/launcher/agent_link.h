// An agent as its launcher sees it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "tools/command/descriptors.h"
#include "tools/launcher/frames.h"

namespace ropewalk::tools {

struct AgentLink {
  pid_t pid = -1;  // of the agent, or of ssh
  FrameChannel channel;
};

/// Forks an agent on this machine. `stdin_fd` >= 0 becomes rank 0's input. The caller must have one
/// thread only. `own_limit` holds what the agent gets. Throws Error(system).
AgentLink start_local_agent(int stdin_fd, const DescriptorLimit& own_limit);

/// Starts `ropewalk run-agent` on `host` by ssh; `ropewalk` is the program's path there. ssh ends
/// where the host is silent for `timeout`, and says why where it `may_speak`. Throws Error(system)
/// where ssh itself cannot be started.
AgentLink start_remote_agent(const std::string& host, const std::string& ropewalk,
                             std::chrono::milliseconds timeout, bool may_speak,
                             const DescriptorLimit& own_limit);

}  // namespace ropewalk::tools

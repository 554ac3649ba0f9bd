// The environment of a rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/launcher/job_part.h"

namespace ropewalk::tools {

/// True for the variables that say who a rank is; never passed on from an outer job.
bool is_identity_variable(std::string_view name);

/// The ROPEWALK_* variables of this process that the user set, as "NAME=value": what
/// remote ranks need besides their own host's environment. Without identity and key.
std::vector<std::string> ropewalk_environment();

struct RankRole {
  int index = 0;            // among the slots of the part
  std::string coordinator;  // host:port, or several of them
  int coordinator_fd = -1;  // listens there; -1: none
  int joined_fd = -1;       // a newcomer's, which has no rank: tells the agent that it has joined
};

/// This process's environment, then `part.environment`, then the rank's identity: ROPEWALK_RANK and
/// _SIZE, or _JOIN_RUNNING and _JOINED_FD; _LOCAL_RANK, _LOCAL_SIZE, _COORDINATOR, _JOB_KEY and,
/// where there is one, _COORDINATOR_FD. Later entries replace earlier ones.
std::vector<std::string> rank_environment(const JobPart& part, const RankRole& role);

}  // namespace ropewalk::tools

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

/// This process's environment, then `part.environment`, then the rank's identity: ROPEWALK_RANK,
/// _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _COORDINATOR, _JOB_KEY and, where `coordinator_fd` >= 0,
/// _COORDINATOR_FD. Later entries replace earlier ones.
std::vector<std::string> rank_environment(const JobPart& part, int index,
                                          const std::string& coordinator, int coordinator_fd);

}  // namespace ropewalk::tools

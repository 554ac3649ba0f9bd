// Starting one rank.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tools/command/descriptors.h"

namespace ropewalk::tools {

struct RankStart {
  std::vector<std::string> program;      // found by the PATH of `environment`
  std::vector<std::string> environment;  // all of it, "NAME=value"
  std::string workdir;                   // empty: the caller's
  int stdin_fd = -1;                     // -1: /dev/null
  std::vector<int> inherited_fds;        // kept open across exec under their numbers
  int cpu = -1;                          // bound to it; -1: not bound
  DescriptorLimit descriptor_limit;      // for the program
};

/// A running rank, or why there is none (`error` != 0, errno of `failed_step`). The rank leads a
/// process group of its own (group id == pid) and dies with the calling process.
struct RankProcess {
  pid_t pid = -1;
  UniqueFd out, err;  // read ends of its standard output and error, non-blocking
  int error = 0;
  std::string failed_step;
};

/// Returns once the program runs or could not be started. The caller must have one thread only.
RankProcess start_rank(const RankStart& start);

}  // namespace ropewalk::tools

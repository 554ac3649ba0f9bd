// The part of a job that one agent runs, as it travels from launcher to agent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::tools {

struct JobPart {
  int size = 0;                 // ranks of the whole job
  int first_rank = 0;           // the agent runs ranks [first_rank, first_rank + ranks)
  int ranks = 0;                // 0: only such as are lost elsewhere
  int slots = 0;                // so many at once, the first `ranks` of them from the start
  int first_local_rank = 0;     // of those of the host, of which it may have several agents
  int local_size = 0;           // all ranks of the host at the start
  int local_slots = 0;          // all slots of the host
  int launcher_timeout_ms = 0;  // a launcher that is silent for so long is lost; 0: never
  bool listen = false;          // make a listener for rank 0, or for newcomers
  bool elastic = false;         // every rank gets it, and those that are started again
  bool loopback = false;        // the whole job is on this machine: listen on 127.0.0.1 only
  bool bind = false;            // one rank per core while there are cores
  bool forward_stdin = false;   // rank 0's input comes as stdin_data
  std::string job_key;          // never on a command line
  std::string workdir;          // empty: where the agent starts
  std::vector<std::string> program;
  std::vector<std::string> environment;  // "NAME=value", added to the agent's own

  bool operator==(const JobPart&) const = default;
};

/// NUL-separated, since no argument or environment entry can contain NUL.
std::string encode(const JobPart& part);
/// Throws Error(protocol).
JobPart decode_job_part(std::string_view bytes);

}  // namespace ropewalk::tools

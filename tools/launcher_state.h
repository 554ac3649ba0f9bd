// What the launcher knows of its ranks and hosts, and where a job stands.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent_link.h"
#include "output.h"

namespace ropewalk::tools {

struct RankState {
  pid_t pid = -1;
  bool running = false;
  LinePrefixer out, err;
};

struct Host {
  std::string name;
  bool is_remote = false;
  int first_rank = 0;
  int slots = 0;
  AgentLink agent;
  bool ready = false, done = false, closed = false;
};

enum class Phase {
  starting,     // waiting for agents
  running,      // ranks run
  grace,        // one has failed; the others may end by themselves
  terminating,  // the rest have been signalled
  killing,      // and killed
  finishing,    // no rank runs; agents tidy up
};

}  // namespace ropewalk::tools

// Starts the ranks of a job, here or on several hosts, and ends them together.
//
// One process with one loop: every host has an agent (agent.h), or several, that run its ranks;
// this side holds the policy. When a rank fails it is named; the others get `grace` to end with
// errors of their own (the library tells them within a second), then SIGTERM, then SIGKILL. In an
// elastic job they go on, and the rank may be started again (restarts.h). SIGINT,
// SIGTERM and SIGHUP are passed on to the ranks. Nothing of the job outlives the launcher, even
// when it is killed.
//
// No output is lost while somebody reads it: a slow reader holds the ranks up by their pipes, and
// the end of the launcher. Only a user who ends the job need not wait for it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/command/standard_output.h"
#include "tools/launcher/hosts.h"
#include "tools/launcher/nodes.h"

namespace ropewalk::tools {

/// A job that goes on without ranks that are lost.
struct Elastic {
  int ranks_min = 1;  // with fewer it is ended
  int restarts = 0;   // so many lost ranks, in all, are started again
};

struct JobSpec {
  std::string command = "ropewalk run";  // how messages name the launcher
  std::vector<std::string> program;      // with its arguments
  int ranks = 1;                         // that this launcher starts
  Node node;                             // among several launchers of one job
  std::vector<HostSlots> hosts;          // exactly `ranks` slots, and spare ones where the job is
                                         // elastic; empty: all on this machine
  bool bind = false;                     // one rank per core, while there are cores
  bool prefix = true;                    // "[rank] " before each line of output
  bool give_stdin = true;                // rank 0 reads the launcher's standard input
  std::optional<Elastic> elastic = {};
  std::vector<std::string> environment;   // "NAME=value", for every rank
  std::string workdir;                    // empty: the launcher's
  std::string remote_ropewalk;            // path on the other hosts; empty: this program's own
  std::chrono::milliseconds grace{2000};  // between failure, SIGTERM, SIGKILL; for leftovers
  std::chrono::milliseconds host_timeout{26000};  // a host that is silent for so long is lost;
                                                  // ranks take 24 s to say whom they lost
  std::optional<std::chrono::milliseconds> time_limit;  // then the job is ended with status 124
};

/// Runs the job and returns its exit status: 0, or that of the first rank to fail (128 + signal
/// where a signal killed it; 127 or 126 where the program was not found or could not start), or
/// kStatusOutputLost where all went well except the output. Errors of the job are told on standard
/// error; throws Error where none could be started.
/// The calling process must have one thread and no other child processes: all children are its own
/// to end. Signal mask and dispositions are put back.
int launch(const JobSpec& job);

}  // namespace ropewalk::tools

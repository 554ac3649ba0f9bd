// What the launcher knows of its ranks and hosts, and where a job stands.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tools/launcher/agent_link.h"
#include "tools/launcher/job_part.h"
#include "tools/launcher/launcher.h"
#include "tools/launcher/ranks.h"

namespace ropewalk::tools {

/// One that an agent serves. This machine may need several, which are entries here one by one.
struct Host {
  using Time = std::chrono::steady_clock::time_point;

  std::string name;
  bool is_remote = false;
  int first_rank = 0;
  int ranks = 0;  // at the start of the job
  int slots = 0;  // so many at once, the spare ones among them
  int first_local_rank = 0;
  int local_size = 0, local_slots = 0;  // ranks and slots of the whole host
  AgentLink agent = {};
  std::string listener_text = {};  // "port address" of the agent's listener, where it has one
  bool closed = true;              // it has no agent: not yet, or not any more
  bool ready = false, done = false;
  bool had_ranks = false;     // of this agent
  bool is_unfit = false;      // a rank could not be started there
  Time dialled = {};          // the agent was started
  Time heard = {};            // once it is ready
  bool silence_told = false;  // since then
  int tries = 0;              // how often it was lost or dialled in vain since it was last there
  Time dial_at = {};          // not before, once it was

  bool is_dialled() const { return !closed && !ready; }
  /// For how long not even a sign of life has come from the agent of a remote host.
  std::chrono::steady_clock::duration silence(Time now) const;
};

/// The hosts of a job, and which ranks each has; of this machine at most so many to an agent, as
/// its limit on descriptors allows. Throws Error(invalid_argument).
std::vector<Host> hosts_of(const JobSpec& job, int local_ranks_per_agent);
/// Where rank 0 listens, which has the listener of `first`; host:port.
std::string coordinator_of(const JobSpec& job, const Host& first);
/// Where a process finds the job that runs: host:port of its hosts, with commas between; those
/// first where somebody listens.
std::string addresses_for_newcomers(const JobSpec& job, const std::vector<Host>& hosts,
                                    const Ranks& ranks);
/// How its agent, or ssh, has ended.
std::string describe_end(const Host& host, int wait_status);
/// With so many descriptors.
int ranks_per_agent(rlim_t descriptors);
/// What the agent of one of them is told, except for the job's key; `has_begun`: it has no ranks of
/// the job's start.
JobPart part_of(const JobSpec& job, const std::vector<Host>& hosts, const Host& host,
                bool has_begun = false);

enum class Phase {
  starting,     // waiting for agents
  running,      // ranks run
  grace,        // one has failed; the others may end by themselves
  terminating,  // the rest have been signalled
  killing,      // and killed
  finishing,    // no rank runs; agents tidy up, and what is left of the output goes out
};

}  // namespace ropewalk::tools

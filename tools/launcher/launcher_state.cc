#include "tools/launcher/launcher_state.h"

#include <filesystem>

#include "ropewalk/status.h"
#include "tools/launcher/rank_environment.h"

namespace ropewalk::tools {

std::vector<Host> hosts_of(const JobSpec& job) {
  std::vector<HostSlots> slots = job.hosts;
  if (slots.empty()) slots.push_back({"localhost", job.ranks});
  if (slots.size() > 1 && slots[0].host == "localhost") {
    throw Error(ErrorCode::invalid_argument, "--hosts",
                "the first of several hosts is \"localhost\", which others cannot reach",
                "use the name by which the other hosts know this machine");
  }
  std::vector<Host> hosts;
  int first = 0;
  for (const HostSlots& entry : slots) {
    hosts.push_back({entry.host, !is_this_machine(entry.host), first, entry.slots, {}});
    first += entry.slots;
  }
  return hosts;
}

JobPart part_of(const JobSpec& job, const std::vector<Host>& hosts, const Host& host) {
  JobPart part;
  part.size = hosts.back().first_rank + hosts.back().slots;
  part.first_rank = host.first_rank;
  part.local_size = host.slots;
  part.listen = host.first_rank == 0;
  part.loopback = hosts.size() == 1 && !host.is_remote;
  part.bind = job.bind;
  part.workdir = job.workdir;
  if (part.workdir.empty() && host.is_remote) part.workdir = std::filesystem::current_path();
  part.program = job.program;
  if (host.is_remote) part.environment = ropewalk_environment();
  part.environment.insert(part.environment.end(), job.environment.begin(), job.environment.end());
  return part;
}

std::chrono::steady_clock::duration Host::silence(std::chrono::steady_clock::time_point now) const {
  return is_remote && ready && !closed ? now - heard : std::chrono::steady_clock::duration{};
}

}  // namespace ropewalk::tools

#include "tools/launcher/launcher_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <cassert>
#include <filesystem>

#include "ropewalk/status.h"
#include "tools/launcher/agent.h"
#include "tools/launcher/processes.h"
#include "tools/launcher/rank_environment.h"

namespace ropewalk::tools {

int ranks_per_agent(rlim_t descriptors) {
  const auto left = std::clamp<rlim_t>(descriptors, kAgentDescriptors, rlim_t{1} << 24);
  return std::max(1, static_cast<int>(left - kAgentDescriptors) / kDescriptorsPerRank);
}

std::vector<Host> hosts_of(const JobSpec& job, int local_ranks_per_agent) {
  assert(local_ranks_per_agent > 0);
  std::vector<HostSlots> slots = job.hosts;
  if (slots.empty()) slots.push_back({"localhost", job.ranks});
  if (slots.size() > 1 && slots[0].host == "localhost") {
    throw Error(ErrorCode::invalid_argument, "--hosts",
                "the first of several hosts is \"localhost\", which others cannot reach",
                "use the name by which the other hosts know this machine");
  }
  std::vector<Host> hosts;
  int first = job.node.rank * job.ranks;
  for (const HostSlots& entry : slots) {
    const bool is_remote = !is_this_machine(entry.host);
    const int total = entry.slots + entry.spare_slots;
    const int most = is_remote ? total : local_ranks_per_agent;
    for (int local = 0; local < total; local += most) {
      const int ranks = std::clamp(entry.slots - local, 0, most);
      hosts.push_back({.name = entry.host,
                       .is_remote = is_remote,
                       .first_rank = first,
                       .ranks = ranks,
                       .slots = std::min(most, total - local),
                       .first_local_rank = local,
                       .local_size = entry.slots,
                       .local_slots = total});
      first += ranks;
    }
  }
  return hosts;
}

JobPart part_of(const JobSpec& job, const std::vector<Host>& hosts, const Host& host,
                bool has_begun) {
  JobPart part;
  part.size = job.node.count * (hosts.back().first_rank + hosts.back().ranks - hosts[0].first_rank);
  part.first_rank = host.first_rank;
  part.ranks = has_begun ? 0 : host.ranks;
  part.slots = host.slots;
  part.first_local_rank = host.first_local_rank;
  part.local_size = host.local_size;
  part.local_slots = host.local_slots;
  part.elastic = job.elastic.has_value();
  part.listen =
      part.elastic ? host.first_local_rank == 0 : host.first_rank == 0 && job.node.count == 1;
  part.loopback = host.local_size == part.size && std::ranges::none_of(hosts, &Host::is_remote);
  if (part.elastic && host.is_remote)
    part.launcher_timeout_ms = static_cast<int>(job.host_timeout.count());
  part.bind = job.bind;
  part.workdir = job.workdir;
  if (part.workdir.empty() && host.is_remote) part.workdir = std::filesystem::current_path();
  part.program = job.program;
  if (host.is_remote) part.environment = ropewalk_environment();
  part.environment.insert(part.environment.end(), job.environment.begin(), job.environment.end());
  return part;
}

std::string coordinator_of(const JobSpec& job, const Host& first) {
  if (job.node.count > 1) return job.node.coordinator;
  const std::string_view listener_text = first.listener_text;
  const size_t blank = std::min(listener_text.find(' '), listener_text.size());
  std::string address(listener_text.substr(std::min(blank + 1, listener_text.size())));
  if (address.empty()) address = first.name.substr(first.name.find('@') + 1);
  if (address.find(':') != std::string::npos) address = "[" + address + "]";
  return fmt::format("{}:{}", address, number_in(listener_text.substr(0, blank)));
}

std::string addresses_for_newcomers(const JobSpec& job, const std::vector<Host>& hosts,
                                    const Ranks& ranks) {
  std::vector<std::string> in_use, others;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].closed || hosts[i].listener_text.empty()) continue;
    (ranks.members(static_cast<int>(i)) > 0 ? in_use : others)
        .push_back(coordinator_of(job, hosts[i]));
  }
  in_use.insert(in_use.end(), others.begin(), others.end());
  return fmt::format("{}", fmt::join(in_use, ","));
}

std::string describe_end(const Host& host, int wait_status) {
  if (!host.is_remote)
    return fmt::format("the agent of this machine (pid {}) {}, and its ranks with it",
                       host.agent.pid, describe_exit(wait_status));
  std::string advice;
  if (!host.ready) {
    advice = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 127
                 ? "; install ropewalk there, or say where it is: --remote-ropewalk PATH"
                 : fmt::format("; try: ssh -o BatchMode=yes {} true", host.name);
  }
  return fmt::format("ssh {}{}", describe_exit(wait_status), advice);
}

std::chrono::steady_clock::duration Host::silence(std::chrono::steady_clock::time_point now) const {
  return is_remote && ready && !closed ? now - heard : std::chrono::steady_clock::duration{};
}

}  // namespace ropewalk::tools

#include "network/job_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

[[noreturn]] void refuse_job(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "network", why,
              "describe all hosts of this job by their names, or just them and their ranks");
}

/// Numbers that follow each other, and how often; nothing where one comes again later.
std::optional<std::vector<HostPart>> parts_of(const std::vector<int>& hosts) {
  std::vector<HostPart> parts;
  std::map<int, int> seen;
  for (const int host : hosts) {
    if (!parts.empty() && parts.back().host == host)
      ++parts.back().ranks;
    else if (++seen[host] == 1)
      parts.push_back({host, 1});
    else
      return {};
  }
  return parts;
}

/// By host of the job: number of the one of its name. Nothing where one is not described, or two
/// are of one name.
std::optional<std::vector<int>> hosts_named(const Network& described,
                                            const std::vector<std::string>& names) {
  std::map<std::string, int> numbers;
  for (int host = 0; host < described.host_count(); ++host)
    numbers.try_emplace(described.hosts[static_cast<size_t>(host)].name, host);
  std::vector<int> found;
  for (const std::string& name : names) {
    const auto number = numbers.find(name);
    if (number == numbers.end() || number->second < 0) return {};
    found.push_back(std::exchange(number->second, -1));
  }
  return found;
}

}  // namespace

Network network_of_job(const Network& described, const std::vector<int>& hosts,
                       const std::vector<std::string>& names) {
  auto parts = parts_of(hosts);
  if (!parts) refuse_job("the ranks of a host do not follow each other");
  std::vector<std::string> name_of_host;
  size_t first = 0;
  for (const HostPart& part : *parts) {
    if (!names.empty()) name_of_host.push_back(names[first]);
    first += static_cast<size_t>(part.ranks);
  }
  if (!names.empty())
    if (const auto named = hosts_named(described, name_of_host)) {
      for (size_t i = 0; i < parts->size(); ++i) (*parts)[i].host = (*named)[i];
      return network_of_hosts(described, *parts);
    }
  if (std::ssize(*parts) != described.host_count())
    refuse_job(fmt::format("{} hosts are described, and the job has {}", described.host_count(),
                           parts->size()));
  for (size_t i = 0; i < parts->size(); ++i) {
    HostPart& part = (*parts)[i];
    part.host = static_cast<int>(i);
    const NetworkHost& host = described.hosts[i];
    if (host.ranks != part.ranks)
      refuse_job(fmt::format("{} is described with {} rank{}, and has {} in the job", host.name,
                             host.ranks, host.ranks == 1 ? "" : "s", part.ranks));
  }
  return network_of_hosts(described, *parts);
}

std::optional<Network> network_of_part(const Network& whole, const std::vector<int>& ranks) {
  const std::vector<int> host_of = whole.host_of_rank();
  std::vector<int> hosts;
  for (const int rank : ranks) hosts.push_back(host_of[static_cast<size_t>(rank)]);
  const auto parts = parts_of(hosts);
  if (!parts || parts->size() < 2) return {};
  return network_of_hosts(whole, *parts);
}

}  // namespace ropewalk

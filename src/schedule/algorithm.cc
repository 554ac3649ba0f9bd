#include "schedule/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <map>

#include "ropewalk/status.h"
#include "schedule/builders.h"

namespace ropewalk {
namespace {

void require(bool condition, const char* what, const ScheduleKey& key, int rank) {
  if (condition) return;
  throw Error(ErrorCode::invalid_argument, "build_schedule",
              fmt::format("{} (ranks {}, rank {}, root {}, {} host numbers)", what, key.ranks, rank,
                          key.root, key.hosts.size()));
}

/// With one rank there is nothing to do, whatever the algorithm; blocks as for more ranks.
Schedule alone(const ScheduleKey& key) {
  return Schedule{1, 0, key.collective == Collective::all_to_all ? 2 : 1, 0, {}, {}};
}

}  // namespace

int Hosts::size_min() const {
  return static_cast<int>(std::ranges::min(members, {}, &std::vector<int>::size).size());
}

int Hosts::size_max() const {
  return static_cast<int>(std::ranges::max(members, {}, &std::vector<int>::size).size());
}

Symmetry symmetric_groups(Collective collective, const Hosts& groups) {
  const int size = groups.size_max();
  if (traits_of(collective).is_rooted() || groups.size_min() != size) return {};
  for (int rank = 0; rank < groups.ranks(); ++rank)
    if (groups.host_of[rank] != rank / size) return {};
  return {Symmetry::Kind::shift, size};
}

Hosts hosts_of(const std::vector<int>& host_numbers, int ranks) {
  Hosts hosts;
  hosts.host_of.reserve(static_cast<size_t>(ranks));
  hosts.place_of.reserve(static_cast<size_t>(ranks));
  std::map<int, int> index_of;
  const auto host_at = [&](int rank) {
    if (host_numbers.empty()) return rank;
    if (rank > 0 && host_numbers[rank] == host_numbers[rank - 1]) return hosts.host_of.back();
    return index_of.try_emplace(host_numbers[rank], hosts.count()).first->second;
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const int host = host_at(rank);
    if (host == hosts.count()) hosts.members.emplace_back();
    std::vector<int>& members = hosts.members[host];
    hosts.host_of.push_back(host);
    hosts.place_of.push_back(static_cast<int>(members.size()));
    members.push_back(rank);
  }
  return hosts;
}

const AlgorithmDescriptor& descriptor_of(Algorithm algorithm) {
#define ROPEWALK_CALL_ALGORITHM(name) name##_algorithm(),
  static const std::vector<AlgorithmDescriptor> descriptors = {
      ROPEWALK_ALGORITHMS(ROPEWALK_CALL_ALGORITHM)};
#undef ROPEWALK_CALL_ALGORITHM
  const auto index = static_cast<size_t>(algorithm) - 1;  // 0 is `automatic`
  assert(index < descriptors.size());
  return descriptors[index];
}

Bound bound_of(const ScheduleKey& key) {
  return key.ranks == 1 ? Bound{} : descriptor_of(key.algorithm).bound(key);
}

const std::vector<Algorithm>& algorithms_for(Collective collective) {
  static const auto lists = [] {
    std::array<std::vector<Algorithm>, kCollectives> by_collective;
    for (int a = 1; a < kAlgorithms; ++a) {
      const AlgorithmDescriptor& descriptor = descriptor_of(static_cast<Algorithm>(a));
      if (descriptor.needs_network) continue;
      for (Collective implemented : descriptor.collectives)
        by_collective[static_cast<size_t>(implemented)].push_back(static_cast<Algorithm>(a));
    }
    return by_collective;
  }();
  return lists[static_cast<size_t>(collective)];
}

bool implements(Algorithm algorithm, Collective collective) {
  return std::ranges::count(descriptor_of(algorithm).collectives, collective) != 0;
}

Schedule build_schedule(const ScheduleKey& key, int rank) {
  require(key.ranks >= 1, "no ranks", key, rank);
  require(rank >= 0 && rank < key.ranks, "rank out of range", key, rank);
  require(key.root >= 0 && key.root < key.ranks, "root out of range", key, rank);
  require(key.hosts.empty() || key.hosts.size() == static_cast<size_t>(key.ranks),
          "need one host number per rank", key, rank);
  const std::vector<Algorithm>& known = algorithms_for(key.collective);
  if (std::ranges::find(known, key.algorithm) == known.end())
    throw Error(ErrorCode::unavailable, "build_schedule",
                fmt::format("{} is not implemented by '{}'", name_of(key.collective),
                            name_of(key.algorithm)));
  return key.ranks == 1 ? alone(key) : descriptor_of(key.algorithm).build(key, rank);
}

}  // namespace ropewalk

// Which ranks share a host, as two_level, the verifier, the simulator and the planner see it.
#pragma once

#include <vector>

namespace ropewalk {

/// Hosts in the order in which their first rank appears; members in rank order.
struct Hosts {
  std::vector<std::vector<int>> members;  // ranks by host
  std::vector<int> host_of;               // by rank: index into `members`
  std::vector<int> place_of;              // by rank: index into its host's members

  int ranks() const { return static_cast<int>(host_of.size()); }
  int count() const { return static_cast<int>(members.size()); }
  int size_min() const;
  int size_max() const;
};

/// `host_numbers` by rank, any numbers; empty: every rank its own host.
Hosts hosts_of(const std::vector<int>& host_numbers, int ranks);

}  // namespace ropewalk

// A network in whole numbers, with hosts that are alike taken together: what forests are planned
// on.
#pragma once

#include <cstdint>
#include <vector>

#include "network/network.h"

namespace ropewalk {

/// Hosts with as many ranks, and links that are alike to the same switches.
struct HostGroup {
  std::vector<int> hosts;
  int ranks_each = 1;
  int64_t rate = 0;  // of one host: of all adapters that its ranks use

  int64_t size() const { return static_cast<int64_t>(hosts.size()); }
};

/// All links between two nodes together; each direction has this rate.
struct FabricLink {
  int ends[2] = {};  // nodes: groups by number, then switches
  int64_t rate = 0;
};

struct Fabric {
  std::vector<HostGroup> groups;
  int switches = 0;
  std::vector<FabricLink> links;
  double bytes_per_s = 0;  // a rate of 1; 0: no link has a limit

  int group_count() const { return static_cast<int>(groups.size()); }
  int nodes() const { return group_count() + switches; }
};

/// Rates are rounded up, to 2^18 steps, where they have no larger common divisor; a link without a
/// limit counts as 64 of the fastest that has one.
/// `alone`: a host that is in a group of its own; -1: none. `separate`: each is.
Fabric fabric_of(const Network& network, int alone, bool separate);

/// By host: how many adapters its ranks use (rank i adapter i modulo their number).
std::vector<int> adapters_used(const Network& network);

}  // namespace ropewalk

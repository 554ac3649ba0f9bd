// Which links a message between two ranks takes.
#pragma once

#include <cstdint>
#include <vector>

#include "network/network.h"

namespace ropewalk {

/// A way of a link: twice its number, and 1 more from its second end to its first.
using LinkWay = int32_t;

/// Shortest ways. Where several are as short, the receiving host's number chooses one, as switches
/// do that choose by destination. Rank i of a host uses adapter i modulo the adapters.
class Routes {
 public:
  explicit Routes(const Network& network);

  const Network& network() const { return network_; }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  /// Into `path`; empty: they share a host.
  void find(int from, int to, std::vector<LinkWay>& path);

 private:
  struct Exit {
    int node;  // at the other end
    LinkWay way;
  };

  /// By node: how far from switch `target`; kFar: there is no way.
  const std::vector<uint16_t>& distances_to(int target);
  const Exit& adapter_of(int rank) const;

  static constexpr uint16_t kFar = UINT16_MAX;
  const Network& network_;
  const std::vector<int> host_of_;
  std::vector<int> place_of_;                     // by rank, in its host
  std::vector<std::vector<Exit>> exits_;          // by node
  std::vector<std::vector<uint16_t>> distances_;  // by switch; empty until asked for
};

}  // namespace ropewalk

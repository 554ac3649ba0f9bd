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
  /// How far switches are from one of them, as far outwards as was asked for.
  struct Search {
    int target = -1;
    std::vector<uint32_t> distance;  // by switch; kFar: not reached yet
    std::vector<int> reached;        // nodes, nearer ones first
    size_t next = 0;                 // of those: whose exits were not looked at
  };

  Search& search_from(int target);
  /// Whether there is a way from switch `source` to `target`; the search then knows all that is
  /// nearer.
  bool reaches(int target, int source);
  uint32_t& distance_of(Search& search, int node) const {
    return search.distance[static_cast<size_t>(node - network_.host_count())];
  }
  const Exit& adapter_of(int rank) const;

  static constexpr uint32_t kFar = UINT32_MAX;
  const Network& network_;
  const std::vector<int> host_of_;
  std::vector<int> place_of_;             // by rank, in its host
  std::vector<std::vector<Exit>> exits_;  // by node
  /// By switch, as they are asked for; of a network of too many switches the last one alone.
  std::vector<Search> searches_;
};

}  // namespace ropewalk

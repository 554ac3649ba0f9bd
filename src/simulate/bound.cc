#include <algorithm>
#include <limits>
#include <map>
#include <queue>

#include "simulate/simulate_call.h"

namespace ropewalk {
namespace {

/// Ranks, and what leads into and out of them, in bytes a second.
struct RankGroup {
  double ranks = 0, rate = 0;
  bool has_root = false;
};

double rate_of(const NetworkLink& link) {
  return link.s_per_byte > 0 ? 1 / link.s_per_byte : std::numeric_limits<double>::infinity();
}

std::vector<RankGroup> host_groups(const Network& network, int root) {
  std::vector<RankGroup> groups(network.hosts.size());
  int first = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].ranks = network.hosts[i].ranks;
    groups[i].has_root = root >= first && root < first + network.hosts[i].ranks;
    first += network.hosts[i].ranks;
  }
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (end < network.host_count()) groups[static_cast<size_t>(end)].rate += rate_of(link);
  return groups;
}

/// Hosts at one switch, where all hosts have one adapter.
std::vector<RankGroup> rack_groups(const Network& network, int root) {
  if (network.links.size() < network.hosts.size() || network.hosts.size() == 1) return {};
  std::vector<int> adapters(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (end < network.host_count() && ++adapters[static_cast<size_t>(end)] > 1) return {};
  const std::vector<RankGroup> hosts = host_groups(network, root);
  const std::vector<int> rack_of = network.switch_of_host();
  std::map<int, RankGroup> racks;
  for (size_t i = 0; i < hosts.size(); ++i) {
    RankGroup& rack = racks[rack_of[i]];
    rack.ranks += hosts[i].ranks;
    rack.has_root |= hosts[i].has_root;
  }
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (const auto rack = racks.find(end - network.host_count());
          rack != racks.end() && link.ends[0] >= network.host_count() &&
          link.ends[1] >= network.host_count())
        rack->second.rate += rate_of(link);
  std::vector<RankGroup> groups;
  for (const auto& [number, rack] : racks) groups.push_back(rack);
  return groups;
}

/// The most of what has to leave or reach one group; for reductions that all need, also what all
/// groups have to send together: each of them but one its part of a sum, and one the sum to each.
double pass_s(const std::vector<RankGroup>& groups, Collective collective, double bytes) {
  double all = 0, rates = 0, most = 0;
  for (const RankGroup& group : groups) all += group.ranks, rates += group.rate;
  if (groups.size() < 2) return 0;
  const double others = static_cast<double>(groups.size()) - 1;
  for (const RankGroup& group : groups) {
    const double own = group.ranks / all;
    double passes = 0;  // of the vector, one way
    switch (collective) {
      case Collective::all_reduce:
      case Collective::broadcast:
      case Collective::reduce:
        passes = 1;
        break;
      case Collective::reduce_scatter:
      case Collective::all_gather:
        passes = std::max(own, 1 - own);
        break;
      case Collective::gather:
      case Collective::scatter:
        passes = group.has_root ? 1 - own : own;
        break;
      case Collective::all_to_all:
        passes = group.ranks * (1 - own);  // the vector is one rank's
        break;
      default:
        break;
    }
    most = std::max(most, passes * bytes / group.rate);
  }
  if (collective == Collective::all_reduce) most = std::max(most, 2 * others * bytes / rates);
  return most;
}

/// Until all of `count` know what one knew, where each that knows tells one after the other: Karp
/// and others, "Optimal broadcast and summation in the LogP model", 1993.
double tell_s(int count, const LinkCost& cost) {
  std::priority_queue<double, std::vector<double>, std::greater<>> posting;  // who knows, from when
  posting.push(0);
  double last = 0;
  for (int known = 1; known < count; ++known) {
    const double posted = posting.top() + cost.overhead_s;
    posting.pop();
    last = posted + cost.latency_s;
    posting.push(posted);
    posting.push(last);
  }
  return last;
}

}  // namespace

double least_seconds(const Network& network, Collective collective, int root, size_t bytes) {
  const int ranks = network.ranks();
  if (ranks == 1) return 0;
  const auto length = static_cast<double>(bytes);
  const bool one_host = network.hosts.size() == 1;
  const double passing = std::max(pass_s(host_groups(network, root), collective, length),
                                  pass_s(rack_groups(network, root), collective, length));
  // What one rank has must become known to all.
  const bool tells_all = collective != Collective::gather && collective != Collective::scatter &&
                         collective != Collective::reduce && collective != Collective::all_to_all;
  if (one_host) return tells_all ? tell_s(ranks, network.within) : network.within.latency_s;
  LinkCost between = network.between;
  int most = 1;  // whose CPUs post side by side
  for (const NetworkHost& host : network.hosts) most = std::max(most, host.ranks);
  between.overhead_s /= most;
  return std::max(passing + between.latency_s,
                  tells_all ? tell_s(network.host_count(), between) : between.latency_s);
}

}  // namespace ropewalk

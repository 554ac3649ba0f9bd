#include "synthesize/problem.h"

#include <algorithm>
#include <numeric>

namespace ropewalk {
namespace {

/// A host is no root where its links have less to spare than this part of what others have.
constexpr double kSpareForRoots = 0.25;
/// Of an all_reduce that has a tree for each host: more are too many.
constexpr int64_t kMessagesOfRootsMax = 150'000;

/// Which nodes a link joins with which, where nothing else does.
class Bridges {
 public:
  explicit Bridges(const Fabric& fabric)
      : fabric_(fabric), links_of_(static_cast<size_t>(fabric.nodes())) {
    for (size_t i = 0; i < fabric.links.size(); ++i)
      for (const int end : fabric.links[i].ends) links_of_[static_cast<size_t>(end)].push_back(i);
  }

  /// By node, whether it is on the side with fewer hosts; empty: the link is no bridge, or leads to
  /// no host.
  std::vector<bool> smaller_side(size_t link) const {
    std::vector<bool> side(links_of_.size());
    const auto& ends = fabric_.links[link].ends;
    std::vector<int> nodes{ends[0]};
    side[static_cast<size_t>(ends[0])] = true;
    for (size_t i = 0; i < nodes.size(); ++i)
      for (const size_t next : links_of_[static_cast<size_t>(nodes[i])]) {
        if (next == link) continue;
        for (const int end : fabric_.links[next].ends) {
          if (side[static_cast<size_t>(end)]) continue;
          side[static_cast<size_t>(end)] = true;
          nodes.push_back(end);
        }
      }
    if (side[static_cast<size_t>(ends[1])]) return {};
    const auto [hosts, others] = hosts_on(side);
    if (hosts == 0 || others == 0) return {};
    if (std::pair(hosts, nodes.size()) > std::pair(others, links_of_.size() - nodes.size()))
      side.flip();
    return side;
  }

 private:
  std::pair<int64_t, int64_t> hosts_on(const std::vector<bool>& side) const {
    std::pair<int64_t, int64_t> count;
    for (size_t group = 0; group < fabric_.groups.size(); ++group)
      (side[group] ? count.first : count.second) += fabric_.groups[group].size();
    return count;
  }

  const Fabric& fabric_;
  std::vector<std::vector<size_t>> links_of_;  // by node
};

/// Seconds, of a rate of 1, that an all_reduce of one byte takes at least.
double least_all_reduce_time(const Fabric& fabric) {
  double least = 0, hosts = 0, rates = 0;
  for (const HostGroup& group : fabric.groups) {
    const auto size = static_cast<double>(group.size());
    least = std::max(least, 1 / static_cast<double>(group.rate));
    hosts += size;
    rates += size * static_cast<double>(group.rate);
  }
  return std::max(least, 2 * (hosts - 1) / rates);
}

std::vector<int64_t> all_reduce_roots(const Fabric& fabric) {
  const Bridges bridges(fabric);
  double time = least_all_reduce_time(fabric);
  for (size_t i = 0; i < fabric.links.size(); ++i)
    if (!bridges.smaller_side(i).empty())
      time = std::max(time, 1 / static_cast<double>(fabric.links[i].rate));
  double most = 0;
  for (const HostGroup& group : fabric.groups)
    most = std::max(most, time * static_cast<double>(group.rate) - 1);
  std::vector<int64_t> roots;
  for (const HostGroup& group : fabric.groups) {
    const double spare = time * static_cast<double>(group.rate) - 1;
    roots.push_back(spare >= kSpareForRoots * most ? group.size() : 0);
  }
  int64_t trees = 0, divisor = 0, ranks = 0;
  for (size_t i = 0; i < roots.size(); ++i) {
    trees += roots[i];
    divisor = std::gcd(divisor, roots[i]);
    ranks += fabric.groups[i].size() * fabric.groups[i].ranks_each;
  }
  int64_t by = 1;
  while (by < divisor && (divisor % by != 0 || trees / by * ranks > kMessagesOfRootsMax)) ++by;
  for (int64_t& count : roots) count /= by;
  return roots;
}

std::vector<int64_t> roots_of(const Fabric& fabric, Collective collective, int root_host) {
  if (collective == Collective::all_reduce) return all_reduce_roots(fabric);
  std::vector<int64_t> roots;
  for (const HostGroup& group : fabric.groups)
    roots.push_back(traits_of(collective).is_rooted() ? group.hosts[0] == root_host
                                                      : group.size() * group.ranks_each);
  return roots;
}

/// Trees that pass a group's link, one way, between its own hosts.
int64_t taken_by_groups(const Fabric& fabric, const FabricLink& link, int64_t trees) {
  int64_t taken = 0;
  for (const int end : link.ends) {
    if (end >= fabric.group_count()) continue;
    const HostGroup& group = fabric.groups[static_cast<size_t>(end)];
    const int64_t all_links = group.rate * group.size();
    taken += ((group.size() - 1) * trees * link.rate + all_links - 1) / all_links;
  }
  return taken;
}

/// All trees that have their root on the other side cross the link into `side`, once.
void add_shared_as_needed(const FabricLink& link, const std::vector<bool>& side, int64_t taken,
                          ForestProblem& problem) {
  int64_t inwards = problem.trees();
  for (size_t group = 0; group < problem.roots.size(); ++group)
    if (side[group]) inwards -= problem.roots[group];
  const bool is_first = side[static_cast<size_t>(link.ends[0])];
  const int inside = link.ends[is_first ? 0 : 1], outside = link.ends[is_first ? 1 : 0];
  const int64_t outwards = problem.trees() - inwards;
  problem.arcs.push_back({outside, inside, 0, -2 * inwards, 2 * inwards});
  problem.arcs.push_back({inside, outside, 2 * link.rate, 4 * taken + 2 * inwards, 2 * outwards});
}

}  // namespace

ForestProblem problem_of(const Fabric& fabric, Collective collective, int root_host,
                         Sharing sharing) {
  ForestProblem problem;
  problem.terminals = fabric.group_count();
  problem.nodes = fabric.nodes();
  problem.roots = roots_of(fabric, collective, root_host);
  problem.sinks.resize(fabric.groups.size());
  std::iota(problem.sinks.begin(), problem.sinks.end(), 0);
  const bool both_ways = collective == Collective::all_reduce;
  const Bridges bridges(fabric);
  for (size_t i = 0; i < fabric.links.size(); ++i) {
    const FabricLink& link = fabric.links[i];
    const int64_t taken = taken_by_groups(fabric, link, problem.trees());
    std::vector<bool> side;
    if (both_ways && sharing == Sharing::as_needed) side = bridges.smaller_side(i);
    if (!side.empty()) {
      add_shared_as_needed(link, side, taken, problem);
      continue;
    }
    const int64_t gain = both_ways ? link.rate : 2 * link.rate;
    problem.arcs.push_back({link.ends[0], link.ends[1], gain, 2 * taken, 0});
    problem.arcs.push_back({link.ends[1], link.ends[0], gain, 2 * taken, 0});
  }
  return problem;
}

double least_s_per_byte(const Network& network, Collective collective, int root_host) {
  const TreeUse use = tree_use(collective);
  const Fabric fabric = fabric_of(network, -1, true);
  if (fabric.bytes_per_s == 0 || fabric.group_count() < 2 || !(use.inwards || use.outwards))
    return 0;
  const bool is_all_reduce = collective == Collective::all_reduce;
  // A vector, or what it is reduced to, has to reach the farthest host.
  const Collective asked = is_all_reduce ? Collective::broadcast : collective;
  const int root = traits_of(collective).is_rooted() ? root_host : 0;
  ForestProblem problem = problem_of(fabric, asked, root, Sharing::evenly);
  problem.sinks.clear();
  for (const HostGroup& group : fabric_of(network, root, false).groups)
    problem.sinks.insert(problem.sinks.end(), group.hosts[0]);
  const std::optional<Ratio> time = least_time(problem);
  if (!time) return 0;
  double least = time->value() / static_cast<double>(problem.trees());
  if (is_all_reduce) least = std::max(least, least_all_reduce_time(fabric));
  return least / fabric.bytes_per_s;
}

}  // namespace ropewalk

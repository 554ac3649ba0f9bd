#include "synthesize/spread.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace ropewalk {
namespace {

class Spreader {
 public:
  Spreader(Routes& routes, const Fabric& fabric, TreeUse use, const std::vector<int64_t>& most)
      : routes_(routes),
        network_(routes.network()),
        fabric_(fabric),
        use_(use),
        adapters_(adapters_used(network_)),
        first_rank_(network_.hosts.size()),
        most_(network_.hosts.size()),
        sends_(network_.hosts.size()),
        rooted_(network_.hosts.size()),
        entries_(static_cast<size_t>(network_.ranks())),
        depth_(static_cast<size_t>(network_.ranks())),
        told_(static_cast<size_t>(network_.ranks())),
        entry_(network_.hosts.size()) {
    int rank = 0;
    for (size_t host = 0; host < first_rank_.size(); ++host) {
      first_rank_[host] = rank;
      rank += network_.hosts[host].ranks;
    }
    for (size_t group = 0; group < fabric.groups.size(); ++group)
      for (const int host : fabric.groups[group].hosts)
        most_[static_cast<size_t>(host)] = most[group];
    out_.busy.assign(2 * network_.links.size(), 0);
  }

  void add(const SpanningTree& tree, const TreePlan::Block& root) {
    block_ = root.block;
    std::vector<std::vector<int>> reached(fabric_.groups.size());
    const auto root_group = static_cast<size_t>(tree.root);
    int host =
        root.rank < 0 ? least_loaded(fabric_.groups[root_group].hosts) : routes_.host_of(root.rank);
    const int rank = root.rank < 0 ? next_entry(host, 0, 1) : root.rank;
    round_ = rooted_[static_cast<size_t>(host)]++;
    depth_[static_cast<size_t>(rank)] = 0;
    told_[static_cast<size_t>(rank)] = 0;
    enter(host, rank);
    reached[root_group] = {host};
    for (const auto& [from, to] : tree.edges) {
      const int sender = sender_of(reached[static_cast<size_t>(from)]);
      host = first_of(fabric_.groups[static_cast<size_t>(to)], sender);
      connect(sender, host);
      reached[static_cast<size_t>(to)] = {host};
      // What other groups wait for goes out first.
      reach_all(static_cast<size_t>(from), reached[static_cast<size_t>(from)]);
    }
    for (size_t group = 0; group < reached.size(); ++group) reach_all(group, reached[group]);
  }

  Spread take(int blocks) {
    out_.blocks = blocks;
    for (size_t way = 0; way < out_.busy.size(); ++way) {
      const double busy = static_cast<double>(out_.busy[way]) * network_.links[way / 2].s_per_byte /
                          std::max(blocks, 1);
      if (busy <= out_.s_per_byte) continue;
      out_.s_per_byte = busy;
      out_.busiest = static_cast<LinkWay>(way);
    }
    return std::move(out_);
  }

 private:
  int64_t sends(int host) const { return sends_[static_cast<size_t>(host)]; }
  int depth_of(int host) const {
    return depth_[static_cast<size_t>(entry_[static_cast<size_t>(host)])];
  }
  int least_loaded(const std::vector<int>& hosts) const {
    return *std::ranges::min_element(hosts, {}, [this](int host) { return sends(host); });
  }
  /// Which host of a group is reached first: the one whose way is the least busy, and whose own
  /// links are, when it has handed on to the others.
  int first_of(const HostGroup& group, int sender) {
    if (group.size() == 1) return group.hosts[0];
    const double host_s = fabric_.bytes_per_s * static_cast<double>(group.rate);
    std::pair<double, int64_t> least{};
    int best = -1;
    for (const int host : group.hosts) {
      const double way = busy_with(first_rank_[static_cast<size_t>(sender)],
                                   first_rank_[static_cast<size_t>(host)]);
      const int64_t handed_on = sends(host) + group.size() - 1;
      const std::pair cost(std::max(way, static_cast<double>(handed_on) / host_s), handed_on);
      if (best >= 0 && cost >= least) continue;
      least = cost;
      best = host;
    }
    return best;
  }
  /// The nearest to the root that may send more, or the one that sends the least.
  int sender_of(const std::vector<int>& hosts) const {
    for (const int host : hosts)
      if (sends(host) < most_[static_cast<size_t>(host)]) return host;
    return *std::ranges::min_element(
        hosts, {}, [this](int host) { return std::pair(sends(host), depth_of(host)); });
  }

  /// Of the ranks of `host` that use this adapter, the one that has been entered the least.
  int next_entry(int host, int adapter, int adapters) {
    const int first = first_rank_[static_cast<size_t>(host)];
    const int ranks = network_.hosts[static_cast<size_t>(host)].ranks;
    int best = first + adapter;
    for (int rank = best; rank < first + ranks; rank += adapters)
      if (entries_[static_cast<size_t>(rank)] < entries_[static_cast<size_t>(best)]) best = rank;
    return best;
  }

  void tell(int from, int to) {
    const int depth = depth_[static_cast<size_t>(from)] + 1;
    depth_[static_cast<size_t>(to)] = depth;
    out_.depth = std::max(out_.depth, depth);
    told_[static_cast<size_t>(to)] = 0;
    const int turn = told_[static_cast<size_t>(from)]++;
    out_.messages.push_back({block_, from, to, depth, turn, round_});
  }
  /// `rank` has the block, and hands it on to the others of its host.
  void enter(int host, int rank) {
    ++entries_[static_cast<size_t>(rank)];
    entry_[static_cast<size_t>(host)] = rank;
    const int first = first_rank_[static_cast<size_t>(host)];
    for (int other = first; other < first + network_.hosts[static_cast<size_t>(host)].ranks;
         ++other)
      if (other != rank) tell(rank, other);
  }

  /// What the busiest link of the way is busy, if it takes one more.
  double busy_with(int from, int to) {
    double most = 0;
    const auto count = [&] {
      for (const LinkWay way : path_)
        most = std::max(most, static_cast<double>(out_.busy[static_cast<size_t>(way)] + 1) *
                                  network_.links[static_cast<size_t>(way / 2)].s_per_byte);
    };
    if (use_.inwards) {
      routes_.find(to, from, path_);
      count();
    }
    if (use_.outwards) {
      routes_.find(from, to, path_);
      count();
    }
    return most;
  }
  void occupy(int from, int to) {
    routes_.find(from, to, path_);
    double latency_s = network_.between.latency_s;
    for (const LinkWay way : path_) {
      ++out_.busy[static_cast<size_t>(way)];
      latency_s += network_.links[static_cast<size_t>(way / 2)].all_latency_s();
    }
    out_.latency_s = std::max(out_.latency_s, latency_s);
  }

  void connect(int from_host, int to_host) {
    const int outs = adapters_[static_cast<size_t>(from_host)];
    const int ins = adapters_[static_cast<size_t>(to_host)];
    const int entry = entry_[static_cast<size_t>(from_host)];
    const int entry_adapter = (entry - first_rank_[static_cast<size_t>(from_host)]) % outs;
    std::tuple<double, size_t, bool> least{};
    int from = -1, to = -1;
    for (int out = 0; out < outs; ++out)
      for (int in = 0; in < ins; ++in) {
        const int sender = out == entry_adapter ? entry : next_entry(from_host, out, outs);
        const int receiver = next_entry(to_host, in, ins);
        const double busy = outs * ins == 1 ? 0 : busy_with(sender, receiver);
        const std::tuple cost(busy, path_.size(), sender != entry);
        if (from >= 0 && cost >= least) continue;
        least = cost;
        from = sender;
        to = receiver;
      }
    if (use_.outwards) occupy(from, to);
    if (use_.inwards) occupy(to, from);
    ++sends_[static_cast<size_t>(from_host)];
    tell(from, to);
    enter(to_host, to);
  }

  void reach_all(size_t group, std::vector<int>& reached) {
    const std::vector<int>& hosts = fabric_.groups[group].hosts;
    if (reached.size() == hosts.size()) return;
    const auto entered = std::ranges::find(hosts, reached[0]) - hosts.begin();
    for (size_t i = 1; i < hosts.size(); ++i) {
      const int host = hosts[(static_cast<size_t>(entered) + i) % hosts.size()];
      connect(sender_of(reached), host);
      reached.push_back(host);
    }
  }

  Routes& routes_;
  const Network& network_;
  const Fabric& fabric_;
  const TreeUse use_;
  const std::vector<int> adapters_;
  std::vector<int> first_rank_;   // by host
  std::vector<int64_t> most_;     // by host, as TreePlan::sends_most
  std::vector<int64_t> sends_;    // by host: blocks that it sends outwards
  std::vector<int32_t> rooted_;   // by host: trees that it is the root of
  std::vector<int64_t> entries_;  // by rank: blocks that it is the first of its host to have
  // Of the tree at hand.
  int32_t block_ = 0, round_ = 0;
  std::vector<int32_t> depth_;  // by rank
  std::vector<int32_t> told_;   // by rank: how many others
  std::vector<int> entry_;      // by host: the first rank that has the block
  std::vector<LinkWay> path_;
  Spread out_;
};

}  // namespace

Spread spread(Routes& routes, const Fabric& fabric, TreeUse use, const TreePlan& plan) {
  Spreader spreader(routes, fabric, use, plan.sends_most);
  std::vector<size_t> next(fabric.groups.size());
  int blocks = 0;
  for (const SpanningTree& tree : plan.trees)
    for (int64_t i = 0; i < tree.count; ++i) {
      const auto root = static_cast<size_t>(tree.root);
      spreader.add(tree, plan.blocks_of[root][next[root]++]);
      ++blocks;
    }
  return spreader.take(blocks);
}

}  // namespace ropewalk

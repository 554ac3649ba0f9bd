#include "simulate/rank_symmetry.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ropewalk {
namespace {

/// So many ways are looked up in no time that would matter.
constexpr uint64_t kWaysMax = uint64_t{1} << 25;

/// By rank of the first ones: the ranks that it sends to, in order of first use.
std::vector<std::vector<int>> receivers_of(const std::vector<Schedule>& first) {
  std::vector<std::vector<int>> receivers;
  for (const Schedule& schedule : first) {
    std::vector<bool> seen(static_cast<size_t>(schedule.ranks));
    std::vector<int>& own = receivers.emplace_back();
    for (const Step& step : schedule.steps)
      if (is_send(step.op) && !seen[static_cast<size_t>(step.peer)]) {
        seen[static_cast<size_t>(step.peer)] = true;
        own.push_back(step.peer);
      }
  }
  return receivers;
}

/// Tries one period.
class LinkClasses {
 public:
  LinkClasses(Routes& routes, RankSymmetry& symmetric)
      : routes_(routes),
        links_(routes.network().links),
        symmetry_(symmetric),
        up_(2 * links_.size()),
        stamp_(2 * links_.size()) {
    std::iota(up_.begin(), up_.end(), 0);
  }

  /// Whether the ranks like `base` take links that are alike for what it sends to `peer`.
  bool join(int base, int peer) {
    routes_.find(base, peer, first_);
    const size_t hops = first_.size();
    stamps_ += hops;
    for (int rank = base; rank < symmetry_.ranks; rank += symmetry_.period) {
      const int by = rank - base;
      const int to = symmetry_.kind == Symmetry::Kind::exclusive_or ? peer ^ by
                                                                    : (peer + by) % symmetry_.ranks;
      routes_.find(rank, to, path_);
      if (path_.size() != hops) return false;
      for (size_t hop = 0; hop < hops; ++hop)
        if (!join(path_[hop], first_[hop], stamps_ - hop)) return false;
    }
    return true;
  }
  /// Each class must have one link for each of the ranks that are alike.
  bool finish() {
    std::vector<int> size(up_.size());
    for (size_t i = 0; i < up_.size(); ++i) ++size[root(i)];
    symmetry_.link_class.resize(up_.size());
    for (size_t i = 0; i < up_.size(); ++i) {
      if (stamp_[i] != 0 && size[root(i)] != symmetry_.ranks / symmetry_.period) return false;
      symmetry_.link_class[i] = static_cast<int32_t>(root(i));
    }
    return true;
  }

 private:
  size_t root(size_t i) {
    while (static_cast<size_t>(up_[i]) != i) {
      up_[i] = up_[static_cast<size_t>(up_[i])];
      i = static_cast<size_t>(up_[i]);
    }
    return i;
  }
  /// `stamp`: of one message of one rank at one hop. Two of that kind must not share a link.
  bool join(LinkWay way, LinkWay first, uint64_t stamp) {
    const auto a = static_cast<size_t>(way), b = static_cast<size_t>(first);
    const NetworkLink &one = links_[a / 2], &other = links_[b / 2];
    if (one.s_per_byte != other.s_per_byte || one.all_latency_s() != other.all_latency_s())
      return false;
    if (std::exchange(stamp_[a], stamp) == stamp) return false;
    up_[std::max(root(a), root(b))] = static_cast<int32_t>(std::min(root(a), root(b)));
    return true;
  }

  Routes& routes_;
  const std::vector<NetworkLink>& links_;
  RankSymmetry& symmetry_;
  std::vector<int32_t> up_;      // by LinkWay
  std::vector<uint64_t> stamp_;  // by LinkWay: the last
  uint64_t stamps_ = 0;
  std::vector<LinkWay> first_, path_;
};

/// One switch, an adapter of each host, numbered as they are, and all else alike.
bool is_star(const Network& network) {
  if (network.switches.size() != 1 || network.links.size() != network.hosts.size()) return false;
  for (size_t i = 0; i < network.hosts.size(); ++i) {
    const NetworkLink &link = network.links[i], &first = network.links[0];
    if (network.hosts[i].ranks != network.hosts[0].ranks || link.ends[0] != static_cast<int>(i) ||
        link.s_per_byte != first.s_per_byte || link.all_latency_s() != first.all_latency_s())
      return false;
  }
  return true;
}

/// There every host is as every other.
void class_by_host(const Network& network, RankSymmetry& symmetric) {
  const int period = std::max(symmetric.period / network.hosts[0].ranks, 1);
  for (int host = 0; host < network.host_count(); ++host)
    for (const int side : {0, 1}) symmetric.link_class.push_back(2 * (host % period) + side);
}

bool try_period(Routes& routes, const std::vector<std::vector<int>>& receivers,
                RankSymmetry& symmetric) {
  LinkClasses classes(routes, symmetric);
  const auto unit = static_cast<int>(receivers.size());
  for (int base = 0; base < symmetric.period; ++base)
    for (const int of_first : receivers[static_cast<size_t>(base % unit)]) {
      const int by = base - base % unit;
      const int peer = symmetric.kind == Symmetry::Kind::exclusive_or
                           ? of_first ^ by
                           : (of_first + by) % symmetric.ranks;
      if (!classes.join(base, peer)) return false;
    }
  return classes.finish();
}

}  // namespace

RankSymmetry no_symmetry(const Network& network) {
  RankSymmetry symmetric;
  symmetric.ranks = symmetric.period = network.ranks();
  for (size_t way = 0; way < 2 * network.links.size(); ++way)
    symmetric.link_class.push_back(static_cast<int32_t>(way));
  return symmetric;
}

RankSymmetry find_symmetry(Routes& routes, const ScheduleKey& key, const Symmetry& symmetry,
                           const std::vector<Schedule>& first, uint64_t ways_max) {
  const Network& network = routes.network();
  if (symmetry.kind == Symmetry::Kind::none) return no_symmetry(network);
  RankSymmetry symmetric;
  symmetric.kind = symmetry.kind;
  symmetric.ranks = key.ranks;
  const int per_host = network.hosts[0].ranks;
  if (is_star(network)) {
    symmetric.period = std::lcm(symmetry.unit, per_host);
    const bool is_power = (symmetric.period & (symmetric.period - 1)) == 0;
    if (key.ranks % symmetric.period == 0 && (is_power || symmetry.kind == Symmetry::Kind::shift)) {
      class_by_host(network, symmetric);
      return symmetric;
    }
  }
  const std::vector<std::vector<int>> receivers = receivers_of(first);
  uint64_t ways = 0;
  for (const std::vector<int>& own : receivers) ways += own.size();
  if (ways * static_cast<uint64_t>(key.ranks / symmetry.unit) > std::min(kWaysMax, ways_max))
    return no_symmetry(network);
  for (int period = symmetry.unit; period < key.ranks; period += symmetry.unit) {
    if (key.ranks % period != 0) continue;
    if (symmetry.kind == Symmetry::Kind::exclusive_or && (period & (period - 1)) != 0) continue;
    symmetric.period = period;
    if (try_period(routes, receivers, symmetric)) return symmetric;
  }
  return no_symmetry(network);
}

}  // namespace ropewalk

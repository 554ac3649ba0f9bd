#include "synthesize/synthesize.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ropewalk/status.h"
#include "synthesize/flatten.h"
#include "synthesize/spread.h"

namespace ropewalk {
namespace {

constexpr int kTreesEachMax = 12;            // of a root's share
constexpr int64_t kMessagesMax = 2'500'000;  // of all ranks, one way
constexpr int64_t kEffort = 16'000'000;
constexpr int64_t kEffortForBetter = kEffort / 8;   // where there are some trees
constexpr int64_t kWorkMax = 4'000'000;             // links, groups and switches
constexpr int64_t kStepsOfTime = 256;               // up to twice the least one
constexpr double kNear = 1.005, kWorthMore = 1.01;  // times as long
constexpr int kSeparateHostsMax = 12;

/// Enough to be reckoned through.
bool is_small(const Fabric& fabric) {
  const auto links = static_cast<int64_t>(fabric.links.size());
  return fabric.group_count() == 1 || links * fabric.group_count() * fabric.switches <= kWorkMax;
}

/// Trees and messages for one way to take hosts together.
class ForestSearch {
 public:
  ForestSearch(Routes& routes, Collective collective, int root, double least_s_per_byte,
               bool separate)
      : routes_(routes),
        collective_(collective),
        root_(root),
        least_s_per_byte_(least_s_per_byte),
        is_rooted_(traits_of(collective).is_rooted()),
        fabric_(fabric_of(routes.network(), is_rooted_ ? routes.host_of(root) : -1, separate)) {
    int first = 0;
    for (const NetworkHost& host : routes.network().hosts) {
      first_rank_.push_back(first);
      first += host.ranks;
    }
  }

  bool takes_together() const {
    return std::ranges::any_of(fabric_.groups, [](const auto& group) { return group.size() > 1; });
  }

  /// The one whose links are the least busy; of those that are about as good the one with the
  /// fewest trees.
  std::optional<Spread> run() {
    std::optional<Spread> best;
    if (!is_small(fabric_)) return best;
    for (const Sharing sharing : {Sharing::as_needed, Sharing::evenly}) {
      if (sharing == Sharing::evenly && collective_ != Collective::all_reduce) break;
      problem_ =
          problem_of(fabric_, collective_, is_rooted_ ? routes_.host_of(root_) : -1, sharing);
      sharing_ = sharing;
      effort_ = {kEffort};
      const std::optional<Ratio> time = least_time(problem_);
      if (!time) continue;
      search(*time, best);
      if (best && best->s_per_byte <= kWorthMore * aim_s_per_byte(*time)) break;
    }
    return best;
  }

 private:
  double planned_s_per_byte(const Ratio& time) const {
    return time.value() / static_cast<double>(problem_.trees()) / fabric_.bytes_per_s;
  }

  double aim_s_per_byte(const Ratio& time) const {
    return std::max(planned_s_per_byte(time), least_s_per_byte_);
  }

  void search(const Ratio& time, std::optional<Spread>& best) {
    const int64_t messages = problem_.trees() * (routes_.network().ranks() - 1);
    for (int64_t each = 1; each <= kTreesEachMax; ++each) {
      if (effort_.left < (best ? kEffort - kEffortForBetter : 1)) break;
      if (each > 1 && each * messages > kMessagesMax) break;
      std::optional<Spread> found = attempt(time, each);
      if (!found) continue;
      if (!best || found->s_per_byte < best->s_per_byte / kWorthMore) best = std::move(found);
      if (best->s_per_byte <= kNear * aim_s_per_byte(time)) break;
    }
  }

  Ratio stretched(const Ratio& time, int64_t step) const {
    return {time.over * (kStepsOfTime + step), time.under * kStepsOfTime};
  }

  std::optional<Spread> attempt(const Ratio& time, int64_t each) {
    if (fabric_.group_count() == 1) return spread_of({{0, each * problem_.roots[0], {}}}, {}, each);
    int64_t step = 0, more = 1;
    if (!holds(stretched(time, 0), each)) {
      if (!holds(stretched(time, kStepsOfTime), each)) return {};
      int64_t low = 0;
      step = kStepsOfTime;
      while (step - low > 1) {
        const int64_t middle = (low + step) / 2;
        (holds(stretched(time, middle), each) ? step : low) = middle;
      }
    }
    for (int turn = 0; turn < 4; ++turn, step += more, more *= 3) {
      const Ratio used = stretched(time, step);
      TreeCapacities capacities = capacities_at(problem_, used, each);
      if (!remove_switches(capacities, effort_)) return {};
      if (!reaches_all(capacities, problem_.sinks)) continue;
      if (auto trees = pack_trees(std::move(capacities), effort_))
        return spread_of(std::move(*trees), used, each);
    }
    return {};
  }
  bool holds(const Ratio& time, int64_t each) const {
    return reaches_all(capacities_at(problem_, time, each), problem_.sinks);
  }

  std::optional<Spread> spread_of(std::vector<SpanningTree> trees, const Ratio& time,
                                  int64_t each) const {
    TreePlan plan;
    plan.trees = std::move(trees);
    // Where data goes one way, what flows from many at once would queue instead.
    if (collective_ == Collective::all_reduce) flatten(fabric_, plan.trees);
    int next_block = 0;
    for (size_t group = 0; group < fabric_.groups.size(); ++group) {
      plan.blocks_of.push_back(blocks_of(group, each, next_block));
      plan.sends_most.push_back(sends_most(group, time, each));
    }
    return spread(routes_, fabric_, tree_use(collective_), plan);
  }

  /// Blocks [r k, (r+1) k) are of rank r, where ranks have parts. Hosts take turns.
  std::vector<TreePlan::Block> blocks_of(size_t number, int64_t each, int& next_block) const {
    std::vector<TreePlan::Block> blocks;
    const HostGroup& group = fabric_.groups[number];
    const auto count = static_cast<int>(each * problem_.roots[number]);
    if (!traits_of(collective_).has_parts()) {
      for (int i = 0; i < count; ++i) blocks.push_back({next_block++, is_rooted_ ? root_ : -1});
      return blocks;
    }
    for (int piece = 0; piece < each; ++piece)
      for (int place = 0; place < group.ranks_each; ++place)
        for (const int host : group.hosts) {
          const int rank = first_rank_[static_cast<size_t>(host)] + place;
          blocks.push_back({rank * static_cast<int>(each) + piece, rank});
        }
    return blocks;
  }

  int64_t sends_most(size_t number, const Ratio& time, int64_t each) const {
    if (time.over == 0) return INT64_MAX;
    const HostGroup& group = fabric_.groups[number];
    const double least =
        least_s_per_byte_ * fabric_.bytes_per_s * static_cast<double>(problem_.trees());
    const double passed =
        std::max(time.value(), least) * static_cast<double>(group.rate) * static_cast<double>(each);
    const auto whole = static_cast<int64_t>(passed + 1e-6);
    if (collective_ != Collective::all_reduce) return whole;
    if (sharing_ == Sharing::evenly) return whole / 2;
    // But for its own trees it sends inwards once.
    return whole - each * (problem_.trees() - problem_.roots[number] / group.size());
  }

  Routes& routes_;
  const Collective collective_;
  const int root_;
  const double least_s_per_byte_;
  const bool is_rooted_;
  const Fabric fabric_;
  std::vector<int> first_rank_;  // by host
  ForestProblem problem_;
  Sharing sharing_ = Sharing::as_needed;
  Effort effort_{kEffort};
};

[[noreturn]] void refuse_to_synthesize(const std::string& why, ErrorCode code) {
  throw Error(code, "synthesize", why, "use one of the algorithms");
}

void require_gain(const Network& network, Collective collective) {
  const TreeUse use = tree_use(collective);
  if (!use.inwards && !use.outwards)
    refuse_to_synthesize(fmt::format("{} is not made of trees", name_of(collective)),
                         ErrorCode::unavailable);
  if (network.hosts.size() < 2)
    refuse_to_synthesize("there are no links between ranks of one host", ErrorCode::unavailable);
  if (std::ranges::all_of(network.links, [](const auto& link) { return link.s_per_byte <= 0; }))
    refuse_to_synthesize("no link has a limit", ErrorCode::unavailable);
  if (network.ranks() > kSynthesizedRanksMax)
    refuse_to_synthesize(
        fmt::format("{} ranks are more than {}", network.ranks(), kSynthesizedRanksMax),
        ErrorCode::exhausted);
}

void require_small(const Fabric& fabric) {
  if (!is_small(fabric))
    refuse_to_synthesize(fmt::format("{} kinds of hosts and {} switches are too many",
                                     fabric.group_count(), fabric.switches),
                         ErrorCode::exhausted);
}

}  // namespace

bool can_synthesize() {
  return true;
}

Forest make_forest(Routes& routes, Collective collective, int root) {
  const Network& network = routes.network();
  require_gain(network, collective);
  const int root_host = routes.host_of(root);
  require_small(fabric_of(network, traits_of(collective).is_rooted() ? root_host : -1, false));
  const double least = least_s_per_byte(network, collective, root_host);
  ForestSearch together(routes, collective, root, least, false);
  std::optional<Spread> best = together.run();
  if (together.takes_together() && network.host_count() <= kSeparateHostsMax &&
      (!best || best->s_per_byte > kWorthMore * least)) {
    std::optional<Spread> other = ForestSearch(routes, collective, root, least, true).run();
    if (!best || (other && other->s_per_byte < best->s_per_byte / kWorthMore))
      best = std::move(other);
  }
  if (!best) refuse_to_synthesize("no trees were found", ErrorCode::unavailable);
  return {.spread = std::move(*best),
          .least_s_per_byte = least,
          .key = {.collective = collective,
                  .algorithm = Algorithm::synthesized,
                  .ranks = network.ranks(),
                  .root = root,
                  .hosts = network.host_of_rank()}};
}

}  // namespace ropewalk

#include "synthesize/forest.h"

#include <algorithm>
#include <cassert>
#include <numeric>

#include "synthesize/flow_graph.h"

namespace ropewalk {
namespace {

__extension__ using Wide = __int128;

/// The capacities of a problem at some time, from a source that feeds each root.
class TimedFlow {
 public:
  explicit TimedFlow(const ForestProblem& problem)
      : problem_(problem), source_(problem.nodes), graph_(problem.nodes + 1) {
    for (const TimedArc& arc : problem.arcs) graph_.add_arc(arc.from, arc.to, 0);
    for (int root = 0; root < problem.terminals; ++root) graph_.add_arc(source_, root, 0);
  }

  void set_time(const Ratio& time) {
    int number = 0;
    for (const TimedArc& arc : problem_.arcs)
      graph_.set_capacity(number++,
                          std::max<int64_t>(arc.gain * time.over - arc.taken * time.under, 0));
    for (const int64_t trees : problem_.roots)
      graph_.set_capacity(number++, 2 * trees * time.under);
  }

  /// The time that the least cut before `sink` needs; none: enough passes.
  std::optional<Ratio> needed_time(int sink, const Ratio& time) {
    const int64_t wanted = 2 * problem_.trees() * time.under;
    if (graph_.max_flow(source_, sink) >= wanted) return {};
    const std::vector<bool> inside = graph_.source_side();
    Ratio needed{2 * problem_.trees(), 0};
    for (size_t root = 0; root < problem_.roots.size(); ++root)
      if (!inside[root]) needed.over -= 2 * problem_.roots[root];
    for (const TimedArc& arc : problem_.arcs)
      if (inside[static_cast<size_t>(arc.from)] && !inside[static_cast<size_t>(arc.to)]) {
        needed.over += arc.taken;
        needed.under += arc.gain;
      }
    const int64_t divisor = std::max<int64_t>(std::gcd(needed.over, needed.under), 1);
    return Ratio{needed.over / divisor, needed.under / divisor};
  }

 private:
  const ForestProblem& problem_;
  const int source_;
  FlowGraph graph_;
};

/// Within which no arc passes less than nothing, and no switch more than it receives.
Ratio least_time_of_switches(const ForestProblem& problem) {
  Ratio least;
  const auto need = [&least](int64_t over, int64_t under) {
    if (under > 0 && Wide{over} * least.under > Wide{least.over} * under) least = {over, under};
  };
  std::vector<Ratio> of_node(static_cast<size_t>(problem.nodes), Ratio{0, 0});
  for (const TimedArc& arc : problem.arcs) {
    need(arc.taken, arc.gain);
    of_node[static_cast<size_t>(arc.from)].over += arc.needed;
    of_node[static_cast<size_t>(arc.to)].over += arc.taken;
    of_node[static_cast<size_t>(arc.to)].under += arc.gain;
  }
  for (size_t node = static_cast<size_t>(problem.terminals); node < of_node.size(); ++node)
    need(of_node[node].over, of_node[node].under);
  return least;
}

}  // namespace

int64_t ForestProblem::trees() const {
  return std::accumulate(roots.begin(), roots.end(), int64_t{0});
}

int64_t TreeCapacities::trees() const {
  return std::accumulate(roots.begin(), roots.end(), int64_t{0});
}

std::optional<Ratio> least_time(const ForestProblem& problem) {
  Ratio time = least_time_of_switches(problem);
  TimedFlow flow(problem);
  flow.set_time(time);
  for (const int sink : problem.sinks)
    while (const auto needed = flow.needed_time(sink, time)) {
      // Where no time is enough; and where arcs that pass less than nothing hide what is missing.
      if (needed->under == 0 || Wide{needed->over} * time.under <= Wide{time.over} * needed->under)
        return {};
      time = *needed;
      flow.set_time(time);
    }
  return time;
}

TreeCapacities capacities_at(const ForestProblem& problem, const Ratio& time, int64_t each) {
  TreeCapacities capacities{problem.terminals, problem.roots, {}};
  for (int64_t& trees : capacities.roots) trees *= each;
  const auto nodes = static_cast<size_t>(problem.nodes);
  capacities.arcs.assign(nodes, std::vector<int64_t>(nodes));
  for (const TimedArc& arc : problem.arcs) {
    const Wide passed = Wide{each} * (Wide{arc.gain} * time.over - Wide{arc.taken} * time.under);
    capacities.arcs[static_cast<size_t>(arc.from)][static_cast<size_t>(arc.to)] +=
        static_cast<int64_t>(std::max<Wide>(passed, 0) / (2 * Wide{time.under}));
  }
  return capacities;
}

bool reaches_all(const TreeCapacities& capacities, const std::vector<int>& sinks) {
  const int source = capacities.nodes();
  FlowGraph graph(source + 1);
  for (int from = 0; from < source; ++from)
    for (int to = 0; to < source; ++to) {
      const int64_t capacity = capacities.arcs[static_cast<size_t>(from)][static_cast<size_t>(to)];
      if (capacity > 0) graph.add_arc(from, to, capacity);
    }
  for (int root = 0; root < capacities.terminals; ++root)
    graph.add_arc(source, root, capacities.roots[static_cast<size_t>(root)]);
  return std::ranges::all_of(
      sinks, [&](int sink) { return graph.max_flow(source, sink) >= capacities.trees(); });
}

}  // namespace ropewalk

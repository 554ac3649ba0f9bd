// Edge splitting: a way u > w > t through a switch w becomes an arc u > t, as often as every
// terminal can still be reached by all trees.
#include <algorithm>
#include <utility>

#include "synthesize/flow_graph.h"
#include "synthesize/forest.h"

namespace ropewalk {
namespace {

class SwitchSplitter {
 public:
  SwitchSplitter(TreeCapacities& capacities, Effort& effort)
      : left_(capacities),
        effort_(effort),
        nodes_(capacities.nodes()),
        trees_(capacities.trees()),
        graph_(nodes_ + 2),
        numbers_(capacities.arcs.size(), std::vector<int>(capacities.arcs.size(), -1)) {
    for (int from = 0; from < nodes_; ++from)
      for (int to = 0; to < nodes_; ++to) set(from, to, left(from, to));
    for (int node = 0; node < nodes_; ++node) {
      from_source_.push_back(graph_.add_arc(source(), node, fed(node)));
      to_sink_.push_back(graph_.add_arc(node, sink(), 0));
    }
  }

  bool run() {
    balance();
    int together = 1;
    for (int node = left_.terminals; node < nodes_ && effort_.left > 0;) {
      const int end = std::min(node + together, nodes_);
      if (split_at_once(node, end)) {
        node = end;
        together *= 2;
      } else if (together > 1) {
        together /= 2;
      } else {
        split(node, true, true);
        split(node, false, true);
        drop(node++);
      }
    }
    return effort_.left > 0;
  }

 private:
  int source() const { return nodes_; }
  int sink() const { return nodes_ + 1; }
  int64_t fed(int node) const {
    return node < left_.terminals ? left_.roots[static_cast<size_t>(node)] : 0;
  }
  int64_t& left(int from, int to) {
    return left_.arcs[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  void set(int from, int to, int64_t capacity) {
    if (from == to) return;
    left(from, to) = capacity;
    int& number = numbers_[static_cast<size_t>(from)][static_cast<size_t>(to)];
    if (number >= 0)
      graph_.set_capacity(number, capacity);
    else if (capacity > 0)
      number = graph_.add_arc(from, to, capacity);
  }

  /// By how much more than all trees enters sets of nodes that have all of `inside` and none of
  /// `outside`, at least.
  int64_t spare(const std::vector<int>& inside, const std::vector<int>& outside) {
    for (const int node : outside)
      graph_.set_capacity(from_source_[static_cast<size_t>(node)], kUnlimitedCapacity);
    for (const int node : inside)
      graph_.set_capacity(to_sink_[static_cast<size_t>(node)], kUnlimitedCapacity);
    effort_.left -= graph_.arcs();
    const int64_t flow = graph_.max_flow(source(), sink());
    for (const int node : outside)
      graph_.set_capacity(from_source_[static_cast<size_t>(node)], fed(node));
    for (const int node : inside) graph_.set_capacity(to_sink_[static_cast<size_t>(node)], 0);
    return flow - trees_;
  }
  /// The same, of those sets that have a terminal.
  int64_t spare_with_terminal(std::vector<int> inside, const std::vector<int>& outside,
                              int64_t most) {
    const auto is_terminal = [this](int node) { return node < left_.terminals; };
    if (std::ranges::any_of(inside, is_terminal))
      return std::clamp<int64_t>(spare(inside, outside), 0, most);
    // Mostly even sets without one have as much: one question in place of one for each terminal.
    if (most == 0 || spare(inside, outside) >= most) return most;
    inside.push_back(0);
    for (int turn = 0; turn < left_.terminals && most > 0; ++turn) {
      const int terminal = (doubtful_ + turn) % left_.terminals;
      if (std::ranges::find(outside, terminal) != outside.end()) continue;
      inside.back() = terminal;
      most = std::clamp<int64_t>(spare(inside, outside), 0, most);
      if (most == 0) doubtful_ = terminal;
    }
    return most;
  }

  int64_t entering(int node) {
    int64_t sum = 0;
    for (int from = 0; from < nodes_; ++from) sum += left(from, node);
    return sum;
  }
  int64_t leaving(int node) {
    int64_t sum = 0;
    for (int to = 0; to < nodes_; ++to) sum += left(node, to);
    return sum;
  }

  /// Takes from what leaves a switch and is not needed, where more leaves it than enters. More that
  /// enters does no harm. What cannot be taken once cannot be later, when there is less.
  void balance() {
    const auto count = static_cast<size_t>(nodes_);
    std::vector<std::vector<bool>> needed(count, std::vector<bool>(count));  // [from][to]
    bool changed = true;
    for (int pass = left_.terminals; pass < nodes_ && std::exchange(changed, false); ++pass)
      for (int node = left_.terminals; node < nodes_; ++node) {
        int64_t excess = leaving(node) - entering(node);
        for (int to = nodes_ - 1; to >= 0 && excess > 0; --to) {
          auto is_needed = needed[static_cast<size_t>(node)][static_cast<size_t>(to)];
          if (left(node, to) == 0 || is_needed) continue;
          const int64_t most = std::min(excess, left(node, to));
          const int64_t taken = spare_with_terminal({to}, {node}, most);
          is_needed = taken < most;
          set(node, to, left(node, to) - taken);
          excess -= taken;
          changed |= taken > 0;
        }
      }
  }

  /// Of u > w > t. Sets that have w alone of the three lose what enters from u, those that have u
  /// and t, not w, what enters from w.
  int64_t splittable(int u, int w, int t, int64_t most) {
    most = spare_with_terminal({u, t}, {w}, most);
    return most > 0 ? spare_with_terminal({w}, {u, t}, most) : 0;
  }

  void drop(int node) {
    for (int other = 0; other < nodes_; ++other) {
      set(node, other, 0);
      set(other, node, 0);
    }
  }

  /// Mostly there is enough whatever goes where. As splitting never adds to what enters a set, one
  /// question for each terminal answers that for some switches together.
  bool split_at_once(int first, int end) {
    const std::vector<std::vector<int64_t>> before = left_.arcs;
    for (int w = first; w < end; ++w) {
      split(w, true, false);
      split(w, false, false);
      drop(w);
    }
    bool is_enough = true;
    for (int turn = 0; turn < left_.terminals && is_enough; ++turn) {
      const int terminal = (doubtful_ + turn) % left_.terminals;
      is_enough = spare({terminal}, {}) >= 0;
      if (!is_enough) doubtful_ = terminal;
    }
    if (is_enough) return true;
    for (int from = 0; from < nodes_; ++from)
      for (int to = 0; to < nodes_; ++to) {
        const int64_t capacity = before[static_cast<size_t>(from)][static_cast<size_t>(to)];
        if (left(from, to) != capacity) set(from, to, capacity);
      }
    return false;
  }

  /// `evenly`: each node sends to each other in proportion, so that trees are flat. `asking`: as
  /// much as leaves enough.
  void split(int w, bool evenly, bool asking) {
    const int64_t all = std::max<int64_t>(entering(w), 1);
    std::vector<int64_t> share(static_cast<size_t>(nodes_));
    for (int u = 0; u < nodes_; ++u) share[static_cast<size_t>(u)] = left(u, w);
    for (int t = 0; t < nodes_; ++t) {
      const int64_t wanted = left(w, t);
      const int64_t others = std::max<int64_t>(all - share[static_cast<size_t>(t)], 1);
      for (int turn = 1; turn < nodes_ && left(w, t) > 0 && effort_.left > 0; ++turn) {
        const int u = (t + turn) % nodes_;
        int64_t most = std::min(left(u, w), left(w, t));
        if (evenly)
          most = std::min(most, (wanted * share[static_cast<size_t>(u)] + others - 1) / others);
        if (u == w || most == 0) continue;
        const int64_t moved = asking ? splittable(u, w, t, most) : most;
        if (moved == 0) continue;
        set(u, w, left(u, w) - moved);
        set(w, t, left(w, t) - moved);
        set(u, t, left(u, t) + moved);
      }
    }
  }

  TreeCapacities& left_;
  Effort& effort_;
  const int nodes_;
  const int64_t trees_;
  int doubtful_ = 0;  // the terminal for which nothing was left last: it is asked first
  FlowGraph graph_;
  std::vector<std::vector<int>> numbers_;  // of arcs in graph_; -1: not there
  std::vector<int> from_source_, to_sink_;
};

}  // namespace

bool remove_switches(TreeCapacities& capacities, Effort& effort) {
  return SwitchSplitter(capacities, effort).run();
}

}  // namespace ropewalk

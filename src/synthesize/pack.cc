// Tree packing: trees grow by one arc at a time, as many equal ones together as leave enough for
// all others.
#include <algorithm>
#include <cassert>
#include <iterator>
#include <numeric>

#include "synthesize/flow_graph.h"
#include "synthesize/forest.h"

namespace ropewalk {
namespace {

/// Equal trees that reach the same terminals so far.
struct GrowingTrees {
  SpanningTree tree;
  std::vector<int> reached;  // in order
  std::vector<bool> has;     // by terminal

  GrowingTrees(int root, int64_t count, int terminals)
      : tree{root, count, {}}, reached{root}, has(static_cast<size_t>(terminals)) {
    has[static_cast<size_t>(root)] = true;
  }
};

class TreePacker {
 public:
  TreePacker(TreeCapacities& capacities, Effort& effort)
      : left_(capacities),
        effort_(effort),
        terminals_(capacities.terminals),
        waiting_(capacities.roots),
        graph_(terminals_ + 1),
        numbers_(waiting_.size(), std::vector<int>(waiting_.size(), -1)) {
    for (int a = 0; a < terminals_; ++a) {
      from_source_.push_back(graph_.add_arc(terminals_, a, waiting_[static_cast<size_t>(a)]));
      for (int b = 0; b < terminals_; ++b) {
        if (left(a, b) == 0) continue;
        number(a, b) = graph_.add_arc(a, b, left(a, b));
        ++arcs_left_;
      }
    }
  }

  std::optional<std::vector<SpanningTree>> run() {
    for (int root = 0; root < terminals_; ++root) {
      int64_t& count = waiting_[static_cast<size_t>(root)];
      if (count == 0) continue;
      growing_.emplace_back(root, count, terminals_);
      count = 0;
      graph_.set_capacity(from_source_[static_cast<size_t>(root)], 0);
      while (!growing_.empty())
        if (effort_.left <= 0 || !grow()) return {};
    }
    return std::move(done_);
  }

 private:
  int64_t& left(int from, int to) {
    return left_.arcs[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }
  int& number(int from, int to) {
    return numbers_[static_cast<size_t>(from)][static_cast<size_t>(to)];
  }

  /// Adds an arc to the newest trees, or to some of them.
  bool grow() {
    if (static_cast<int>(growing_.back().reached.size()) == terminals_) {
      done_.push_back(std::move(growing_.back().tree));
      growing_.pop_back();
      return true;
    }
    for (size_t i = 0; i < growing_.back().reached.size(); ++i)
      for (int turn = 1; turn < terminals_; ++turn) {
        const int from = growing_.back().reached[i], to = (from + turn) % terminals_;
        if (growing_.back().has[static_cast<size_t>(to)] || left(from, to) == 0) continue;
        if (const int64_t count = addable(from, to); count > 0) {
          add(from, to, count);
          return true;
        }
      }
    return false;
  }

  void add(int from, int to, int64_t count) {
    if (count < growing_.back().tree.count) {
      growing_.push_back(growing_.back());
      growing_[growing_.size() - 2].tree.count -= count;
      growing_.back().tree.count = count;
    }
    GrowingTrees& trees = growing_.back();
    trees.tree.edges.emplace_back(from, to);
    trees.reached.push_back(to);
    trees.has[static_cast<size_t>(to)] = true;
    left(from, to) -= count;
    graph_.set_capacity(number(from, to), left(from, to));
    if (left(from, to) == 0) --arcs_left_;
  }

  /// To how many of the newest trees. For all other trees that do not reach a set of terminals as
  /// many arcs have to be left that enter it.
  int64_t addable(int from, int to) {
    const int64_t spare =
        growing_.size() == 1 ? spare_without_others(from, to) : spare_with_others(from, to);
    return std::max<int64_t>(std::min({spare, left(from, to), growing_.back().tree.count}), 0);
  }

  /// Where only the newest are begun, on the graph that stays.
  int64_t spare_without_others(int from, int to) {
    const int fed = from_source_[static_cast<size_t>(from)];
    effort_.left -= arcs_left_;
    graph_.set_capacity(fed, kUnlimitedCapacity);
    const int64_t flow = graph_.max_flow(terminals_, to);
    graph_.set_capacity(fed, waiting_[static_cast<size_t>(from)]);
    return flow - std::accumulate(waiting_.begin(), waiting_.end(), int64_t{0});
  }

  int64_t spare_with_others(int from, int to) {
    const size_t others = growing_.size() - 1;
    FlowGraph graph(terminals_ + static_cast<int>(others));
    int64_t counted = 0;
    for (int a = 0; a < terminals_; ++a) {
      for (int b = 0; b < terminals_; ++b)
        if (left(a, b) > 0) graph.add_arc(a, b, left(a, b));
      const int64_t count = waiting_[static_cast<size_t>(a)];
      counted += count;
      if (count > 0 && a != from) graph.add_arc(from, a, count);
    }
    for (size_t i = 0; i < others; ++i) {
      const int node = terminals_ + static_cast<int>(i);
      counted += growing_[i].tree.count;
      graph.add_arc(from, node, growing_[i].tree.count);
      for (const int terminal : growing_[i].reached)
        graph.add_arc(node, terminal, kUnlimitedCapacity);
    }
    effort_.left -= graph.arcs();
    return graph.max_flow(from, to) - counted;
  }

  TreeCapacities& left_;
  Effort& effort_;
  const int terminals_;
  std::vector<int64_t> waiting_;           // by root: trees that are not begun
  std::vector<GrowingTrees> growing_;      // the newest last
  FlowGraph graph_;                        // what is left; its last node feeds the trees that wait
  std::vector<std::vector<int>> numbers_;  // of arcs in graph_
  std::vector<int> from_source_;
  int64_t arcs_left_ = 0;
  std::vector<SpanningTree> done_;
};

}  // namespace

std::optional<std::vector<SpanningTree>> pack_trees(TreeCapacities capacities, Effort& effort) {
  // No switch passes anything on.
  assert(
      std::all_of(capacities.arcs.begin() + capacities.terminals, capacities.arcs.end(),
                  [](const auto& row) { return std::ranges::count(row, 0) == std::ssize(row); }));
  return TreePacker(capacities, effort).run();
}

}  // namespace ropewalk

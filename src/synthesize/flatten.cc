#include "synthesize/flatten.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

namespace ropewalk {
namespace {

/// Each is tried with each other, some times.
constexpr int64_t kFlattenedEdgesMax = 1'000;
constexpr int kPassesMax = 8;

class ParentedTree {
 public:
  ParentedTree(const SpanningTree& tree, int nodes) : root_(tree.root) {
    parents_.assign(static_cast<size_t>(nodes), -1);
    for (const auto& [from, to] : tree.edges) parents_[static_cast<size_t>(to)] = from;
    measure();
  }

  int parent(int node) const { return parents_[static_cast<size_t>(node)]; }
  bool has(int node, int ancestor) const {
    for (; node >= 0; node = parent(node))
      if (node == ancestor) return true;
    return false;
  }
  /// By how much the sum of all depths grows. Requires that `parent` is neither the node nor below
  /// it.
  int64_t growth(int node, int parent) const {
    assert(!has(parent, node));
    return below_[static_cast<size_t>(node)] *
           (depths_[static_cast<size_t>(parent)] + 1 - depths_[static_cast<size_t>(node)]);
  }
  void set_parent(int node, int parent) {
    parents_[static_cast<size_t>(node)] = parent;
    measure();
  }
  int64_t depth(int node) const { return depths_[static_cast<size_t>(node)]; }

  SpanningTree take(int64_t count) const {
    SpanningTree tree{root_, count, {}};
    std::vector<int> order;
    for (int node = 0; node < std::ssize(parents_); ++node)
      if (node != root_) order.push_back(node);
    std::ranges::stable_sort(order, {}, [this](int node) { return depth(node); });
    for (const int node : order) tree.edges.emplace_back(parent(node), node);
    return tree;
  }

 private:
  void measure() {
    const size_t nodes = parents_.size();
    depths_.assign(nodes, 0);
    below_.assign(nodes, 0);
    for (size_t node = 0; node < nodes; ++node)
      for (int at = static_cast<int>(node); at >= 0; at = parent(at)) {
        ++below_[static_cast<size_t>(at)];
        if (parent(at) >= 0) ++depths_[node];
      }
  }

  int root_;
  std::vector<int> parents_;  // by node; of the root -1
  std::vector<int64_t> depths_;
  std::vector<int64_t> below_;  // nodes, and itself
};

class Flattener {
 public:
  Flattener(const Fabric& fabric, std::vector<SpanningTree>& trees)
      : nodes_(fabric.group_count()), neighbours_(static_cast<size_t>(nodes_)) {
    for (const FabricLink& link : fabric.links)
      for (const int side : {0, 1})
        if (link.ends[side] < nodes_)
          neighbours_[static_cast<size_t>(link.ends[side])].insert(link.ends[1 - side]);
    for (const SpanningTree& tree : trees)
      for (int64_t i = 0; i < tree.count; ++i) trees_.emplace_back(tree, nodes_);
  }

  void run() {
    bool changed = true;
    for (int pass = 0; pass < kPassesMax && std::exchange(changed, false); ++pass)
      for (ParentedTree& tree : trees_)
        for (int node = 0; node < nodes_; ++node)
          if (tree.depth(node) > 1) changed |= raise(tree, node);
  }

  std::vector<SpanningTree> take() const {
    std::vector<SpanningTree> trees;
    for (const ParentedTree& tree : trees_) trees.push_back(tree.take(1));
    return trees;
  }

 private:
  bool are_alike(int a, int b) const {
    return a == b || neighbours_[static_cast<size_t>(a)] == neighbours_[static_cast<size_t>(b)];
  }
  bool raise(ParentedTree& tree, int node) {
    int64_t least = 0;
    ParentedTree* with = nullptr;
    int with_node = -1;
    const int from = tree.parent(node);
    for (ParentedTree& other : trees_) {
      if (&other == &tree) continue;
      for (int to = 0; to < nodes_; ++to) {
        const int parent = other.parent(to);
        if (parent < 0 || parent == from || !(are_alike(parent, from) || are_alike(node, to)))
          continue;
        if (tree.has(parent, node) || other.has(from, to)) continue;
        const int64_t growth = tree.growth(node, parent) + other.growth(to, from);
        if (growth >= least) continue;
        least = growth;
        with = &other;
        with_node = to;
      }
    }
    if (with == nullptr) return false;
    tree.set_parent(node, with->parent(with_node));
    with->set_parent(with_node, from);
    return true;
  }

  const int nodes_;
  std::vector<std::set<int>> neighbours_;  // by group
  std::vector<ParentedTree> trees_;
};

}  // namespace

void flatten(const Fabric& fabric, std::vector<SpanningTree>& trees) {
  int64_t edges = 0;
  for (const SpanningTree& tree : trees) edges += tree.count * std::ssize(tree.edges);
  if (edges > kFlattenedEdgesMax) return;
  Flattener flattener(fabric, trees);
  flattener.run();
  trees = flattener.take();
}

}  // namespace ropewalk

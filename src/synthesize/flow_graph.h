// Maximum flows and least cuts, by Boost.Graph.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace ropewalk {

/// A directed graph whose arcs have capacities, which may change between two questions. Not for use
/// by two threads at once.
class FlowGraph {
 public:
  explicit FlowGraph(int nodes);
  ~FlowGraph();
  FlowGraph(const FlowGraph&) = delete;
  FlowGraph& operator=(const FlowGraph&) = delete;

  /// Number of the arc, for `set_capacity`. Capacities are not negative; those that leave a node,
  /// and those that reach it, together stay below 2^62.
  int add_arc(int from, int to, int64_t capacity);
  void set_capacity(int arc, int64_t capacity);
  int64_t arcs() const;
  /// Boykov and Kolmogorov, "An experimental comparison of min-cut/max-flow algorithms", 2004.
  /// `source` and `sink` differ.
  int64_t max_flow(int source, int sink);
  /// After max_flow, by node: whether it lies on the source's side of a least cut.
  std::vector<bool> source_side() const;

 private:
  struct Boosted;
  std::unique_ptr<Boosted> boosted_;
};

/// More than any capacity that is counted.
inline constexpr int64_t kUnlimitedCapacity = int64_t{1} << 48;

}  // namespace ropewalk

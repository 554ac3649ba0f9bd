// Forests: how many trees a graph with capacities holds, and which (Zhao and others, "ForestColl:
// Throughput-Optimal Collective Communications on Heterogeneous Network Fabrics", arXiv
// 2402.06787).
//
// Some nodes are terminals, the others switches. Each terminal is the root of a number of trees,
// every one of which reaches all terminals. All is in whole numbers, and the same every time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ropewalk {

/// Within time t an arc passes gain * t - taken halves of trees. So many of them are needed, even
/// where all trees reach each terminal by itself without.
struct TimedArc {
  int from = 0, to = 0;
  int64_t gain = 0, taken = 0, needed = 0;
};

struct ForestProblem {
  int terminals = 0;           // nodes 0 to terminals - 1
  int nodes = 0;               // and the switches
  std::vector<int64_t> roots;  // by terminal: trees that it is the root of
  std::vector<TimedArc> arcs;
  std::vector<int> sinks;  // terminals that stand for all: others are like one of them

  int64_t trees() const;
};

struct Ratio {
  int64_t over = 0, under = 1;

  double value() const { return static_cast<double>(over) / static_cast<double>(under); }
};

/// The least time within which the arcs can pass all trees (in fractions): the most, over the sets
/// of nodes that some terminal is not in, of the trees with roots in the set by what leaves it. And
/// as much reaches a switch as is needed of what leaves it: switches copy nothing. Newton's method:
/// each flow that is too small tells a cut that needs more time. None: there is no such time.
std::optional<Ratio> least_time(const ForestProblem& problem);

/// How many trees may use each arc.
struct TreeCapacities {
  int terminals = 0;
  std::vector<int64_t> roots;              // by terminal
  std::vector<std::vector<int64_t>> arcs;  // [from][to]

  int nodes() const { return static_cast<int>(arcs.size()); }
  int64_t trees() const;
};

/// Of `each` times as many trees, within `time`.
TreeCapacities capacities_at(const ForestProblem& problem, const Ratio& time, int64_t each);
/// Whether all trees can reach each of `sinks`: then, with no switches, there are such trees
/// (Edmonds, "Edge-disjoint branchings", 1973).
bool reaches_all(const TreeCapacities& capacities, const std::vector<int>& sinks);

/// How much may still be reckoned, the same on every machine: arcs, once for each maximum flow.
struct Effort {
  int64_t left = 0;
};

/// Replaces ways through switches by arcs between terminals (edge splitting: Bang-Jensen, Frank and
/// Jackson, "Preserving and increasing local edge-connectivity in mixed graphs", 1995). Where as
/// much enters each switch as leaves it, nothing is lost; else ask `reaches_all` afterwards. False:
/// the effort is used up.
bool remove_switches(TreeCapacities& capacities, Effort& effort);

struct SpanningTree {
  int root = 0;
  int64_t count = 0;                       // so many that are equal
  std::vector<std::pair<int, int>> edges;  // from, to; outwards, nearer ones first
};
/// Requires that only arcs between terminals are left, and `reaches_all`. Bérczi and Frank,
/// "Packing arborescences", 2009. None: they are not there, or the effort is used up.
std::optional<std::vector<SpanningTree>> pack_trees(TreeCapacities capacities, Effort& effort);

}  // namespace ropewalk

#include "synthesize/forest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "synthesize/flow_graph.h"

namespace ropewalk {
namespace {

TEST(FlowGraph, FindsFlowAndCut) {
  FlowGraph graph(4);  // 0 > 1 > 3 and 0 > 2 > 3
  graph.add_arc(0, 1, 5);
  graph.add_arc(0, 2, 7);
  const int narrow = graph.add_arc(1, 3, 2);
  graph.add_arc(2, 3, 9);
  EXPECT_EQ(graph.max_flow(0, 3), 9);
  EXPECT_EQ(graph.source_side(), (std::vector<bool>{true, true, false, false}));
  graph.set_capacity(narrow, 5);
  EXPECT_EQ(graph.max_flow(0, 3), 12);
  EXPECT_EQ(graph.max_flow(3, 0), 0);
}

constexpr Effort kEnough{int64_t{1} << 40};

/// Terminals around one switch, which pass `rates` each way.
ForestProblem star(const std::vector<int64_t>& rates, const std::vector<int64_t>& roots) {
  ForestProblem problem;
  const int n = static_cast<int>(rates.size());
  problem.terminals = n;
  problem.nodes = n + 1;
  problem.roots = roots;
  for (int i = 0; i < n; ++i) {
    const int64_t gain = 2 * rates[static_cast<size_t>(i)];
    problem.arcs.push_back({i, n, gain, 0, 0});
    problem.arcs.push_back({n, i, gain, 0, 0});
    problem.sinks.push_back(i);
  }
  return problem;
}

TEST(LeastTime, OfAStarIsThatOfItsSlowestTerminal) {
  EXPECT_EQ(least_time(star({1, 1, 1, 1}, {1, 1, 1, 1}))->value(), 3);
  EXPECT_EQ(least_time(star({4, 4, 4, 1}, {1, 1, 1, 1}))->value(), 3);
  EXPECT_EQ(least_time(star({4, 4, 4, 1}, {1, 1, 1, 9}))->value(), 9);  // its own leave it
  EXPECT_EQ(least_time(star({5, 5, 5}, {1, 2, 3}))->value(), 5.0 / 5);
  EXPECT_EQ(least_time(star({5, 5, 5}, {0, 4, 0}))->value(), 4.0 / 5);
}

TEST(LeastTime, HeedsWhatIsTakenFromArcs) {
  ForestProblem problem = star({2, 2}, {1, 1});
  problem.arcs[1].taken = 6;  // into the first: 2 t - 3 trees
  EXPECT_EQ(least_time(problem)->value(), 2);
  problem.arcs[1] = {2, 0, 0, 0, 0};  // nothing reaches it
  EXPECT_FALSE(least_time(problem).has_value());
}

TEST(LeastTime, LetsNoSwitchSendMoreThanItReceives) {
  // Three terminals, each of which must send one tree of its own, and receives two.
  ForestProblem problem = star({1, 1, 1}, {1, 1, 1});
  for (int i = 0; i < 3; ++i) {
    problem.arcs[static_cast<size_t>(2 * i)] = {i, 3, 2, 0, 2};
    problem.arcs[static_cast<size_t>(2 * i) + 1] = {3, i, 0, -4, 4};
  }
  EXPECT_EQ(least_time(problem)->value(), 2);  // one would do for each by itself
}

/// Checks that they are trees from their roots to all terminals, as many as are wanted, and within
/// the capacities.
void expect_packed(const TreeCapacities& capacities, const std::vector<SpanningTree>& trees) {
  std::vector<std::vector<int64_t>> used(capacities.arcs.size(),
                                         std::vector<int64_t>(capacities.arcs.size()));
  std::vector<int64_t> rooted(capacities.roots.size());
  for (const SpanningTree& tree : trees) {
    ASSERT_GT(tree.count, 0);
    std::vector<bool> reached(capacities.roots.size());
    reached[static_cast<size_t>(tree.root)] = true;
    rooted[static_cast<size_t>(tree.root)] += tree.count;
    for (const auto& [from, to] : tree.edges) {
      EXPECT_TRUE(reached[static_cast<size_t>(from)]);
      EXPECT_FALSE(reached[static_cast<size_t>(to)]);
      reached[static_cast<size_t>(to)] = true;
      used[static_cast<size_t>(from)][static_cast<size_t>(to)] += tree.count;
    }
    EXPECT_EQ(tree.edges.size() + 1, reached.size());
  }
  EXPECT_EQ(rooted, capacities.roots);
  for (size_t from = 0; from < used.size(); ++from)
    for (size_t to = 0; to < used.size(); ++to)
      EXPECT_LE(used[from][to], capacities.arcs[from][to]) << from << " > " << to;
}

TEST(PackTrees, FindsAsManyAsEdmondsPromises) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 draw(seed);
    TreeCapacities capacities;
    capacities.terminals = 2 + static_cast<int>(draw() % 6);
    const auto n = static_cast<size_t>(capacities.terminals);
    capacities.arcs.assign(n, std::vector<int64_t>(n));
    std::vector<int> sinks(n);
    std::iota(sinks.begin(), sinks.end(), 0);
    for (size_t i = 0; i < n; ++i) capacities.roots.push_back(static_cast<int64_t>(draw() % 3));
    ++capacities.roots[0];
    // Arcs are added until there is just enough.
    while (!reaches_all(capacities, sinks)) {
      const size_t from = draw() % n, to = draw() % n;
      if (from != to) capacities.arcs[from][to] += 1 + static_cast<int64_t>(draw() % 2);
    }
    Effort effort = kEnough;
    const auto trees = pack_trees(capacities, effort);
    ASSERT_TRUE(trees.has_value()) << "seed " << seed;
    expect_packed(capacities, *trees);
  }
}

TEST(PackTrees, FindsNoneWhereThereAreNone) {
  TreeCapacities capacities{3, {1, 1, 1}, {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}}};
  Effort effort = kEnough;
  EXPECT_FALSE(pack_trees(capacities, effort).has_value());
}

TEST(Effort, EndsWhatTakesTooLong) {
  const ForestProblem problem = star({1, 1, 1, 1}, {1, 1, 1, 1});
  TreeCapacities capacities = capacities_at(problem, {3, 1}, 1);
  Effort little{1};
  EXPECT_FALSE(remove_switches(capacities, little));
  EXPECT_LE(little.left, 0);
  EXPECT_FALSE(pack_trees(capacities, little).has_value());
}

/// Terminals and switches joined at random, with as much each way.
ForestProblem random_problem(std::mt19937_64& draw) {
  ForestProblem problem;
  problem.terminals = 2 + static_cast<int>(draw() % 5);
  const int switches = 1 + static_cast<int>(draw() % 4);
  problem.nodes = problem.terminals + switches;
  const auto join = [&](int a, int b) {
    const int64_t gain = 2 * (1 + static_cast<int64_t>(draw() % 5));
    problem.arcs.push_back({a, b, gain, 0, 0});
    problem.arcs.push_back({b, a, gain, 0, 0});
  };
  const auto any_switch = [&](int below) {
    return problem.terminals + static_cast<int>(draw() % static_cast<uint64_t>(below));
  };
  for (int i = 1; i < switches; ++i) join(problem.terminals + i, any_switch(i));
  for (int i = 0; i < problem.terminals; ++i) {
    join(i, any_switch(switches));
    if (draw() % 2 == 0) join(i, any_switch(switches));
    problem.roots.push_back(1 + static_cast<int64_t>(draw() % 3));
    problem.sinks.push_back(i);
  }
  return problem;
}

TEST(RemoveSwitches, LosesNothingWhereAsMuchEntersAsLeaves) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 draw(seed);
    const ForestProblem problem = random_problem(draw);
    const auto time = least_time(problem);
    ASSERT_TRUE(time.has_value()) << "seed " << seed;
    // In the least time with as many trees as make all capacities whole numbers.
    TreeCapacities capacities = capacities_at(problem, *time, time->under);
    ASSERT_TRUE(reaches_all(capacities, problem.sinks)) << "seed " << seed;
    Effort effort = kEnough;
    ASSERT_TRUE(remove_switches(capacities, effort));
    for (int node = 0; node < capacities.nodes(); ++node)
      for (int other = problem.terminals; other < capacities.nodes(); ++other) {
        EXPECT_EQ(capacities.arcs[static_cast<size_t>(node)][static_cast<size_t>(other)], 0);
        EXPECT_EQ(capacities.arcs[static_cast<size_t>(other)][static_cast<size_t>(node)], 0);
      }
    ASSERT_TRUE(reaches_all(capacities, problem.sinks)) << "seed " << seed;
    const auto trees = pack_trees(capacities, effort);
    ASSERT_TRUE(trees.has_value()) << "seed " << seed;
    // In less time there is not enough.
    const Ratio less{time->over * 1000 - 1, time->under * 1000};
    EXPECT_FALSE(reaches_all(capacities_at(problem, less, less.under), problem.sinks));
  }
}

}  // namespace
}  // namespace ropewalk

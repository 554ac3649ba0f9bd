#include "synthesize/flatten.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ropewalk {
namespace {

/// Groups of one host, `of_switch` for each switch, all of whose links are alike.
Fabric stars(int switches, int of_switch) {
  Fabric fabric;
  fabric.switches = switches;
  fabric.bytes_per_s = 1;
  for (int i = 0; i < switches * of_switch; ++i) {
    fabric.groups.push_back({{i}, 1, 1});
    fabric.links.push_back({{i, switches * of_switch + i / of_switch}, 1});
  }
  for (int i = 1; i < switches; ++i)
    fabric.links.push_back({{switches * of_switch, switches * of_switch + i}, 1});
  return fabric;
}

/// From each node to all others in turn.
std::vector<SpanningTree> chains(int nodes) {
  std::vector<SpanningTree> trees;
  for (int root = 0; root < nodes; ++root) {
    trees.push_back({root, 1, {}});
    for (int i = 1; i < nodes; ++i)
      trees.back().edges.emplace_back((root + i - 1) % nodes, (root + i) % nodes);
  }
  return trees;
}

struct Count {
  int depths = 0;                // of all nodes of all trees
  std::vector<int> sends;        // by node
  std::vector<int> switch_ways;  // from one switch to another, by both
};

/// Also checks that they are trees from their roots to all nodes.
Count count(const std::vector<SpanningTree>& trees, int nodes, int of_switch) {
  const int switches = nodes / of_switch;
  Count counted{0, std::vector<int>(static_cast<size_t>(nodes)),
                std::vector<int>(static_cast<size_t>(switches * switches))};
  for (const SpanningTree& tree : trees) {
    EXPECT_EQ(tree.count, 1);
    EXPECT_EQ(std::ssize(tree.edges), nodes - 1);
    std::vector<int> depth(static_cast<size_t>(nodes), -1);
    depth[static_cast<size_t>(tree.root)] = 0;
    for (const auto& [from, to] : tree.edges) {
      EXPECT_GE(depth[static_cast<size_t>(from)], 0);
      EXPECT_EQ(depth[static_cast<size_t>(to)], -1);
      depth[static_cast<size_t>(to)] = depth[static_cast<size_t>(from)] + 1;
      ++counted.sends[static_cast<size_t>(from)];
      ++counted.switch_ways[static_cast<size_t>(from / of_switch * switches + to / of_switch)];
    }
    counted.depths += std::accumulate(depth.begin(), depth.end(), 0);
  }
  return counted;
}

TEST(Flatten, ChainsOfOneSwitchBecomeFlat) {
  std::vector<SpanningTree> trees = chains(6);
  const Count before = count(trees, 6, 6);
  flatten(stars(1, 6), trees);
  const Count after = count(trees, 6, 6);
  EXPECT_EQ(after.sends, before.sends);
  EXPECT_EQ(before.depths, 6 * 15);
  EXPECT_LE(after.depths, 6 * 8);  // 6 * 5 in stars
}

TEST(Flatten, LinksBetweenSwitchesPassAsMuch) {
  std::vector<SpanningTree> trees = chains(8);
  const Count before = count(trees, 8, 4);
  flatten(stars(2, 4), trees);
  const Count after = count(trees, 8, 4);
  EXPECT_EQ(after.sends, before.sends);
  EXPECT_EQ(after.switch_ways, before.switch_ways);
  EXPECT_LT(after.depths, before.depths);
}

TEST(Flatten, EqualTreesAreTakenApart) {
  std::vector<SpanningTree> trees{{0, 3, {{0, 1}, {1, 2}}}, {2, 3, {{2, 1}, {1, 0}}}};
  flatten(stars(1, 3), trees);
  EXPECT_EQ(trees.size(), 6u);
  count(trees, 3, 3);
}

}  // namespace
}  // namespace ropewalk

#include "network/routes.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

/// The nodes that a message passes.
std::vector<std::string> route_of(const Network& network, int from, int to) {
  Routes routes(network);
  std::vector<LinkWay> path;
  routes.find(from, to, path);
  std::vector<std::string> names;
  for (const LinkWay way : path) {
    const NetworkLink& link = network.links[static_cast<size_t>(way / 2)];
    if (names.empty()) names.push_back(network.name_of(link.ends[way % 2]));
    EXPECT_EQ(names.back(), network.name_of(link.ends[way % 2]));
    names.push_back(network.name_of(link.ends[1 - way % 2]));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Routes, StayInARackOrPassTheCore) {
  const Network network = network_of_template("racks:2x2", 8);
  EXPECT_EQ(route_of(network, 0, 1), Names());
  EXPECT_EQ(route_of(network, 0, 2), (Names{"h0", "rack0", "h1"}));
  EXPECT_EQ(route_of(network, 7, 0), (Names{"h3", "rack1", "core", "rack0", "h0"}));
}

TEST(Routes, RanksUseTheirAdapter) {
  const Network network = network_of_template("rail:hosts=2:gpus=4", 0);
  EXPECT_EQ(route_of(network, 1, 5), (Names{"h0", "rail1", "h1"}));
  EXPECT_EQ(route_of(network, 1, 6), (Names{"h0", "rail1", "spine", "rail2", "h1"}));
}

TEST(Routes, AdaptersOnNetworksThatDoNotMeetAreLeftOut) {
  const Network network = parse_network(
      R"({"hosts": [{"name": "a", "ranks": 2}, {"name": "b", "ranks": 2}],
          "switches": [{"name": "s"}, {"name": "t"}],
          "links": [{"between": ["a", "s"]}, {"between": ["a", "t"]}, {"between": ["b", "t"]}]})");
  EXPECT_EQ(route_of(network, 0, 2), (Names{"a", "t", "b"}));
  EXPECT_EQ(route_of(network, 3, 0), (Names{"b", "t", "a"}));
}

TEST(Routes, SpreadOverEquallyShortWays) {
  const Network network = network_of_template("fat-tree:k=4", 0);
  EXPECT_EQ(route_of(network, 0, 1).size(), 3u);
  EXPECT_EQ(route_of(network, 0, 2).size(), 5u);
  EXPECT_EQ(route_of(network, 0, 15).size(), 7u);
  EXPECT_NE(route_of(network, 0, 14)[2], route_of(network, 0, 15)[2]);
}

// A table of all switches for each that is sent to took gigabytes.
TEST(Routes, AreFoundOutwardsInLargeNetworks) {
  const Network network = network_of_template("torus:256x256", 0);
  Routes routes(network);
  std::vector<LinkWay> path;
  for (int from = 0; from < network.host_count(); ++from) {
    routes.find(from, (from + 1) % network.host_count(), path);
    ASSERT_EQ(path.size(), from % 256 == 255 ? 4u : 3u) << from;
  }
  routes.find(0, 128 * 256 + 128, path);
  EXPECT_EQ(path.size(), 258u);
}

TEST(Routes, GoAroundATorus) {
  const Network network = network_of_template("torus:5x5", 0);
  EXPECT_EQ(route_of(network, 0, 4), (Names{"h0", "r0", "r4", "h4"}));
  EXPECT_EQ(route_of(network, 0, 24).size(), 5u);
}

}  // namespace
}  // namespace ropewalk

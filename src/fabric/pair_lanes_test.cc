#include "fabric/pair_lanes.h"

#include <gtest/gtest.h>

namespace ropewalk::verbs {
namespace {

constexpr auto kIb = LinkLayer::infiniband;
constexpr auto kEth = LinkLayer::ethernet;

PortInfo port(LinkLayer layer, const char* subnet, uint32_t rate_gbps = 100) {
  return {"dev", 1, layer, subnet, rate_gbps};
}
using Pairs = std::vector<LanePair>;

TEST(PairLanes, OnePortEach) {
  EXPECT_EQ(pair_lanes({port(kIb, "fe80::/64")}, {port(kIb, "fe80::/64")}, 0), (Pairs{{0, 0}}));
}

TEST(PairLanes, LanesRepeatWhereThereAreMoreThanPorts) {
  const std::vector<PortInfo> one = {port(kEth, "10.0.0.0/8")};
  EXPECT_EQ(pair_lanes(one, one, 3), (Pairs{{0, 0}, {0, 0}, {0, 0}}));
}

TEST(PairLanes, RailsAreJoinedInOrderWithinOneSubnet) {
  const std::vector<PortInfo> two = {port(kIb, "fe80::/64"), port(kIb, "fe80::/64")};
  EXPECT_EQ(pair_lanes(two, two, 0), (Pairs{{0, 0}, {1, 1}}));
  EXPECT_EQ(pair_lanes(two, two, 4), (Pairs{{0, 0}, {1, 1}, {0, 0}, {1, 1}}));
  EXPECT_EQ(pair_lanes(two, two, 1), (Pairs{{0, 0}}));
}

TEST(PairLanes, RailsOfSubnetsOfTheirOwnAreNotCrossed) {
  const std::vector<PortInfo> a = {port(kEth, "10.1.0.0/16"), port(kEth, "10.2.0.0/16")};
  const std::vector<PortInfo> b = {port(kEth, "10.2.0.0/16"), port(kEth, "10.1.0.0/16")};
  EXPECT_EQ(pair_lanes(a, b, 0), (Pairs{{0, 1}, {1, 0}}));
}

TEST(PairLanes, WhereSomeShareASubnetOthersAreLeftOut) {
  const std::vector<PortInfo> a = {port(kEth, "10.9.0.0/16"), port(kEth, "10.1.0.0/16")};
  const std::vector<PortInfo> b = {port(kEth, "10.1.0.0/16"), port(kEth, "10.8.0.0/16")};
  EXPECT_EQ(pair_lanes(a, b, 0), (Pairs{{1, 0}}));
  EXPECT_EQ(pair_lanes(a, b, 2), (Pairs{{1, 0}, {1, 0}}));
}

TEST(PairLanes, OtherSubnetsAreJoinedWhereNoneIsShared) {
  EXPECT_EQ(pair_lanes({port(kEth, "10.1.0.0/16")}, {port(kEth, "10.2.0.0/16")}, 0),
            (Pairs{{0, 0}}));
}

TEST(PairLanes, AnUnknownSubnetIsNoSharedOne) {
  const std::vector<PortInfo> a = {port(kEth, ""), port(kEth, "10.1.0.0/16")};
  const std::vector<PortInfo> b = {port(kEth, ""), port(kEth, "10.1.0.0/16")};
  EXPECT_EQ(pair_lanes(a, b, 0), (Pairs{{1, 1}}));
  EXPECT_EQ(pair_lanes({port(kEth, "")}, {port(kEth, "")}, 0), (Pairs{{0, 0}}));
}

TEST(PairLanes, LinkLayersAreNeverMixed) {
  EXPECT_TRUE(pair_lanes({port(kIb, "fe80::/64")}, {port(kEth, "fe80::/64")}, 0).empty());
  const std::vector<PortInfo> a = {port(kEth, "10.1.0.0/16"), port(kIb, "fe80::/64")};
  const std::vector<PortInfo> b = {port(kIb, "fe80::/64"), port(kEth, "10.1.0.0/16")};
  EXPECT_EQ(pair_lanes(a, b, 0), (Pairs{{1, 0}}));
  EXPECT_TRUE(pair_lanes({}, b, 0).empty());
}

TEST(PairLanes, MuchSlowerPortsAreLeftOut) {
  const std::vector<PortInfo> a = {port(kEth, "10.1.0.0/16", 25), port(kEth, "10.1.0.0/16", 200)};
  EXPECT_EQ(pair_lanes(a, a, 0), (Pairs{{1, 1}}));
  const std::vector<PortInfo> b = {port(kEth, "10.1.0.0/16", 100), port(kEth, "10.1.0.0/16", 200)};
  EXPECT_EQ(pair_lanes(b, b, 0), (Pairs{{0, 0}, {1, 1}}));
}

TEST(PairLanes, UnequalNumbersOfPortsUseAll) {
  const std::vector<PortInfo> two = {port(kIb, "fe80::/64"), port(kIb, "fe80::/64")};
  const std::vector<PortInfo> one = {port(kIb, "fe80::/64")};
  EXPECT_EQ(pair_lanes(two, one, 0), (Pairs{{0, 0}, {1, 0}}));
  EXPECT_EQ(pair_lanes(one, two, 0), (Pairs{{0, 0}, {0, 1}}));
}

}  // namespace
}  // namespace ropewalk::verbs

#include "fabric/pair_lanes.h"

#include <gtest/gtest.h>

namespace ropewalk::verbs {
namespace {

constexpr auto kIb = LinkLayer::infiniband;
constexpr auto kEth = LinkLayer::ethernet;

PortInfo port(LinkLayer layer, std::string subnet, uint32_t rate_gbps = 100) {
  return {"dev", 1, layer, {std::move(subnet)}, rate_gbps};
}

PortInfo port_in(std::vector<std::string> subnets) {
  return {"dev", 1, kEth, std::move(subnets), 100};
}

using Ends = std::vector<std::pair<int, int>>;
Ends ends_of(const std::vector<LanePair>& pairs) {
  Ends ends;
  for (const LanePair& pair : pairs) ends.emplace_back(pair.a, pair.b);
  return ends;
}

TEST(PairLanes, OnePortEach) {
  EXPECT_EQ(ends_of(pair_lanes({port(kIb, "fe80::/64")}, {port(kIb, "fe80::/64")}, 0)),
            (Ends{{0, 0}}));
}

TEST(PairLanes, LanesRepeatWhereThereAreMoreThanPorts) {
  const std::vector<PortInfo> one = {port(kEth, "10.0.0.0/8")};
  EXPECT_EQ(ends_of(pair_lanes(one, one, 3)), (Ends{{0, 0}, {0, 0}, {0, 0}}));
}

TEST(PairLanes, RailsAreJoinedInOrderWithinOneSubnet) {
  const std::vector<PortInfo> two = {port(kIb, "fe80::/64"), port(kIb, "fe80::/64")};
  EXPECT_EQ(ends_of(pair_lanes(two, two, 0)), (Ends{{0, 0}, {1, 1}}));
  EXPECT_EQ(ends_of(pair_lanes(two, two, 4)), (Ends{{0, 0}, {1, 1}, {0, 0}, {1, 1}}));
  EXPECT_EQ(ends_of(pair_lanes(two, two, 1)), (Ends{{0, 0}}));
}

TEST(PairLanes, RailsOfSubnetsOfTheirOwnAreNotCrossed) {
  const std::vector<PortInfo> a = {port(kEth, "10.1.0.0/16"), port(kEth, "10.2.0.0/16")};
  const std::vector<PortInfo> b = {port(kEth, "10.2.0.0/16"), port(kEth, "10.1.0.0/16")};
  EXPECT_EQ(ends_of(pair_lanes(a, b, 0)), (Ends{{0, 1}, {1, 0}}));
}

TEST(PairLanes, WhereSomeShareASubnetOthersAreLeftOut) {
  const std::vector<PortInfo> a = {port(kEth, "10.9.0.0/16"), port(kEth, "10.1.0.0/16")};
  const std::vector<PortInfo> b = {port(kEth, "10.1.0.0/16"), port(kEth, "10.8.0.0/16")};
  EXPECT_EQ(ends_of(pair_lanes(a, b, 0)), (Ends{{1, 0}}));
  EXPECT_EQ(ends_of(pair_lanes(a, b, 2)), (Ends{{1, 0}, {1, 0}}));
}

TEST(PairLanes, OtherSubnetsAreJoinedWhereNoneIsShared) {
  EXPECT_EQ(ends_of(pair_lanes({port(kEth, "10.1.0.0/16")}, {port(kEth, "10.2.0.0/16")}, 0)),
            (Ends{{0, 0}}));
}

TEST(PairLanes, AnUnknownSubnetIsNoSharedOne) {
  const std::vector<PortInfo> a = {port_in({}), port(kEth, "10.1.0.0/16")};
  const std::vector<PortInfo> b = {port_in({}), port(kEth, "10.1.0.0/16")};
  EXPECT_EQ(ends_of(pair_lanes(a, b, 0)), (Ends{{1, 1}}));
  EXPECT_EQ(ends_of(pair_lanes({port_in({})}, {port_in({})}, 0)), (Ends{{0, 0}}));
}

TEST(PairLanes, LinkLayersAreNeverMixed) {
  EXPECT_TRUE(pair_lanes({port(kIb, "fe80::/64")}, {port(kEth, "fe80::/64")}, 0).empty());
  const std::vector<PortInfo> a = {port(kEth, "10.1.0.0/16"), port(kIb, "fe80::/64")};
  const std::vector<PortInfo> b = {port(kIb, "fe80::/64"), port(kEth, "10.1.0.0/16")};
  EXPECT_EQ(ends_of(pair_lanes(a, b, 0)), (Ends{{1, 0}}));
  EXPECT_TRUE(pair_lanes({}, b, 0).empty());
}

TEST(PairLanes, MuchSlowerPortsAreLeftOut) {
  const std::vector<PortInfo> a = {port(kEth, "10.1.0.0/16", 25), port(kEth, "10.1.0.0/16", 200)};
  EXPECT_EQ(ends_of(pair_lanes(a, a, 0)), (Ends{{1, 1}}));
  const std::vector<PortInfo> b = {port(kEth, "10.1.0.0/16", 100), port(kEth, "10.1.0.0/16", 200)};
  EXPECT_EQ(ends_of(pair_lanes(b, b, 0)), (Ends{{0, 0}, {1, 1}}));
}

TEST(PairLanes, UnequalNumbersOfPortsUseAll) {
  const std::vector<PortInfo> two = {port(kIb, "fe80::/64"), port(kIb, "fe80::/64")};
  const std::vector<PortInfo> one = {port(kIb, "fe80::/64")};
  EXPECT_EQ(ends_of(pair_lanes(two, one, 0)), (Ends{{0, 0}, {1, 0}}));
  EXPECT_EQ(ends_of(pair_lanes(one, two, 0)), (Ends{{0, 0}, {0, 1}}));
}

// Hosts need not list a port's addresses in one order.
TEST(PairLanes, PortsWithSeveralAddressesMeetInASubnetThatBothHave) {
  const std::vector<PortInfo> a = {port_in({"10.1.0.0/16", "10.2.0.0/16"})};
  const std::vector<PortInfo> b = {port_in({"10.3.0.0/16", "10.2.0.0/16", "10.1.0.0/16"})};
  EXPECT_EQ(pair_lanes(a, b, 0), (std::vector<LanePair>{{0, 0, "10.1.0.0/16"}}));
  EXPECT_EQ(pair_lanes(b, a, 0), (std::vector<LanePair>{{0, 0, "10.2.0.0/16"}}));
  EXPECT_EQ(pair_lanes(a, {port_in({"10.2.0.0/16", "10.1.0.0/16"})}, 0),
            (std::vector<LanePair>{{0, 0, "10.1.0.0/16"}}));
  EXPECT_EQ(pair_lanes(a, {port_in({"10.4.0.0/16"})}, 0), (std::vector<LanePair>{{0, 0, ""}}));
}

// A subnet that all rails are in does not hide those that tell them apart.
TEST(PairLanes, PreferredSubnetsJoinRails) {
  const PortInfo one = port_in({"10.1.0.0/16", "fd00::/64"});
  const PortInfo two = port_in({"10.2.0.0/16", "fd00::/64"});
  EXPECT_EQ(pair_lanes({one, two}, {two, one}, 0),
            (std::vector<LanePair>{{0, 1, "10.1.0.0/16"}, {1, 0, "10.2.0.0/16"}}));
}

TEST(PairLanes, ARailMayMeetInItsSecondSubnet) {
  EXPECT_EQ(pair_lanes({port_in({"10.1.0.0/16"}), port_in({"10.2.0.0/16", "10.3.0.0/16"})},
                       {port_in({"10.1.0.0/16"}), port_in({"10.3.0.0/16"})}, 0),
            (std::vector<LanePair>{{0, 0, "10.1.0.0/16"}, {1, 1, "10.3.0.0/16"}}));
}

}  // namespace
}  // namespace ropewalk::verbs

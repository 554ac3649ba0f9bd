#include "fabric/select_ports.h"

#include <gtest/gtest.h>

namespace ropewalk::verbs {
namespace {

PortCandidate port(const char* device, double local_share = 1, uint32_t rate_gbps = 100,
                   uint8_t number = 1) {
  return {{device, number, LinkLayer::infiniband, {"fe80::/64"}, rate_gbps}, local_share};
}

struct Selected {
  std::vector<size_t> order;
  std::vector<std::string> why_not;
};
Selected select(const std::vector<PortCandidate>& candidates, bool named = false) {
  Selected result;
  result.order = select_ports(candidates, named, result.why_not);
  return result;
}
using Order = std::vector<size_t>;

TEST(SelectPorts, NoneOfNone) {
  EXPECT_TRUE(select({}).order.empty());
}

TEST(SelectPorts, TheNearestFirst) {
  EXPECT_EQ(select({port("mlx5_0", 0), port("mlx5_1", 1), port("mlx5_2", 0.5)}).order,
            (Order{1, 2}));
}

TEST(SelectPorts, EquallyNearThenByRateThenByName) {
  EXPECT_EQ(select({port("mlx5_0", 1, 100), port("mlx5_1", 1, 200)}).order, (Order{1, 0}));
  EXPECT_EQ(select({port("mlx5_10"), port("mlx5_2"), port("mlx5_3")}).order, (Order{1, 2}));
}

TEST(SelectPorts, AtMostTwoAdaptersAndTheOthersAreNamed) {
  const Selected selected = select({port("a"), port("b"), port("c")});
  EXPECT_EQ(selected.order, (Order{0, 1}));
  ASSERT_EQ(selected.why_not.size(), 1u);
  EXPECT_EQ(selected.why_not[0],
            "c port 1 is left out: 2 other adapters are as near or nearer; to use it, name it in "
            "ROPEWALK_IB_HCA");
}

TEST(SelectPorts, PortsOfOneAdapterCountOnce) {
  EXPECT_EQ(select({port("a", 1, 100, 2), port("a", 1, 100, 1), port("b"), port("c")}).order,
            (Order{1, 0, 2}));
}

TEST(SelectPorts, MuchSlowerOnesAreLeftOutUnlessNamed) {
  const std::vector<PortCandidate> ports = {port("a", 1, 25), port("b", 0, 200)};
  const Selected selected = select(ports);
  EXPECT_EQ(selected.order, (Order{1}));
  ASSERT_EQ(selected.why_not.size(), 1u);
  EXPECT_NE(selected.why_not[0].find("25 Gb/s, another has 200"), std::string::npos);
  EXPECT_EQ(select(ports, true).order, (Order{0, 1}));
}

TEST(SelectPorts, AsManyPortsAsTravel) {
  std::vector<PortCandidate> ports;
  for (uint8_t i = 1; i <= kPortsMax + 1; ++i) ports.push_back(port("a", 1, 100, i));
  const Selected selected = select(ports);
  EXPECT_EQ(selected.order.size(), kPortsMax);
  EXPECT_EQ(selected.why_not.size(), 1u);
}

}  // namespace
}  // namespace ropewalk::verbs

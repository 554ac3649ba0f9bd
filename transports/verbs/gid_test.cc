#include "transports/verbs/gid.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <vector>

namespace ropewalk::verbs {
namespace {

Gid gid(const char* text) {
  Gid gid{};
  if (std::string_view(text).find(':') != std::string_view::npos) {
    EXPECT_EQ(inet_pton(AF_INET6, text, gid.data()), 1) << text;
  } else {
    gid[10] = gid[11] = std::byte{0xff};
    EXPECT_EQ(inet_pton(AF_INET, text, gid.data() + 12), 1) << text;
  }
  return gid;
}

GidEntry entry(uint32_t index, const char* address, GidType type = GidType::roce_v2,
               const char* subnet = "") {
  return {gid(address), index, type, "eth0", subnet};
}

int chosen(const std::vector<GidEntry>& table, std::optional<int> wished = {}) {
  const GidChoice choice = choose_gid(table, wished);
  EXPECT_FALSE(choice.reason.empty());
  return choice.entry ? static_cast<int>(choice.entry->index) : -1;
}

TEST(Gid, Text) {
  EXPECT_EQ(text_of(gid("192.168.1.2")), "192.168.1.2");
  EXPECT_EQ(text_of(gid("fe80::1")), "fe80::1");
  EXPECT_TRUE(is_ipv4(gid("10.0.0.1")));
  EXPECT_FALSE(is_ipv4(gid("::10.0.0.1")));
  EXPECT_TRUE(is_zero(Gid{}));
  EXPECT_FALSE(is_zero(gid("::1")));
}

TEST(Gid, Version2BeforeVersion1) {
  EXPECT_EQ(chosen({entry(0, "10.0.0.1", GidType::roce_v1), entry(1, "fe80::1")}), 1);
  EXPECT_EQ(chosen({entry(4, "10.0.0.1", GidType::roce_v1)}), 4);
}

// What a mlx5 port with an address of each kind lists.
TEST(Gid, WiderReachBeforeLinkLocal) {
  const std::vector<GidEntry> table = {
      entry(0, "fe80::e42:a1ff:fe2b:1c0a", GidType::roce_v1),
      entry(1, "fe80::e42:a1ff:fe2b:1c0a"),
      entry(2, "2001:db8::7", GidType::roce_v1),
      entry(3, "2001:db8::7"),
      entry(4, "192.168.7.7", GidType::roce_v1),
      entry(5, "192.168.7.7"),
  };
  EXPECT_EQ(chosen(table), 5);
  EXPECT_EQ(chosen({table.begin(), table.begin() + 4}), 3);
  EXPECT_EQ(chosen({table.begin(), table.begin() + 2}), 1);
}

TEST(Gid, LoopbackAndIpv4LinkLocalReachNoFarther) {
  EXPECT_EQ(chosen({entry(0, "127.0.0.1"), entry(1, "2001:db8::1")}), 1);
  EXPECT_EQ(chosen({entry(0, "169.254.3.4"), entry(1, "2001:db8::1")}), 1);
  EXPECT_EQ(chosen({entry(0, "fe80::1"), entry(1, "127.0.0.1")}), 1);
}

TEST(Gid, OfEqualOnesTheFirst) {
  EXPECT_EQ(chosen({entry(7, "10.0.0.2"), entry(3, "10.0.0.1")}), 3);
}

TEST(Gid, AWishDecidesAlone) {
  const std::vector<GidEntry> table = {entry(0, "fe80::1", GidType::roce_v1), entry(1, "10.0.0.1")};
  EXPECT_EQ(chosen(table, 0), 0);
  EXPECT_EQ(chosen(table, 2), -1);
  EXPECT_EQ(choose_gid(table, 2).reason,
            "ROPEWALK_IB_GID_INDEX=2, but its GIDs are: 0 fe80::1 (RoCE v1), 1 10.0.0.1 (RoCE v2)");
}

// Two addresses, and what mlx5 lists beside them.
const std::vector<GidEntry> kTwoSubnets = {
    entry(0, "fe80::1", GidType::roce_v1, "fe80::/64"),
    entry(1, "fe80::1", GidType::roce_v2, "fe80::/64"),
    entry(2, "10.1.0.7", GidType::roce_v1, "10.1.0.0/16"),
    entry(3, "10.1.0.7", GidType::roce_v2, "10.1.0.0/16"),
    entry(4, "10.2.0.7", GidType::roce_v1, "10.2.0.0/16"),
    entry(5, "10.2.0.7", GidType::roce_v2, "10.2.0.0/16"),
    entry(6, "fd00::7", GidType::roce_v2, "fd00::/64"),
    entry(7, "10.2.0.8", GidType::roce_v2, "10.2.0.0/16"),
    entry(8, "10.9.0.7", GidType::roce_v2),
};

TEST(Gid, InTheSubnetThatIsAskedFor) {
  const auto in = [](const char* subnet, std::optional<int> wished = {}) {
    return choose_gid(kTwoSubnets, wished, subnet).entry.value().index;
  };
  EXPECT_EQ(in(""), 3u);
  EXPECT_EQ(in("10.2.0.0/16"), 5u);
  EXPECT_EQ(in("fe80::/64"), 1u);
  EXPECT_EQ(in("10.3.0.0/16"), 3u);
  EXPECT_EQ(in("10.2.0.0/16", 6), 6u);
}

TEST(Gid, SubnetsBesideTheOneChosen) {
  using Subnets = std::vector<std::string>;
  EXPECT_EQ(subnets_beside(kTwoSubnets[3], kTwoSubnets),
            (Subnets{"10.1.0.0/16", "10.2.0.0/16", "fd00::/64"}));
  EXPECT_EQ(subnets_beside(kTwoSubnets[6], kTwoSubnets),
            (Subnets{"fd00::/64", "10.1.0.0/16", "10.2.0.0/16"}));
  // Every host has a link-local one, and each means another link.
  EXPECT_EQ(subnets_beside(kTwoSubnets[1], kTwoSubnets), Subnets{"fe80::/64"});
  EXPECT_EQ(subnets_beside(kTwoSubnets[6], std::span(&kTwoSubnets[6], 1)), Subnets{"fd00::/64"});
  EXPECT_EQ(subnets_beside(kTwoSubnets[8], std::span(&kTwoSubnets[8], 1)), Subnets{});
}

TEST(Gid, OfInfiniBandTheFirst) {
  EXPECT_EQ(chosen({entry(0, "fe80::2:c903:10:1", GidType::infiniband),
                    entry(1, "fec0::1", GidType::infiniband)}),
            0);
  EXPECT_EQ(chosen({}), -1);
}

}  // namespace
}  // namespace ropewalk::verbs

#include "bootstrap/net.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ropewalk::bootstrap {
namespace {

TEST(NodeList, FirstHost) {
  EXPECT_EQ(first_host("login1"), "login1");
  EXPECT_EQ(first_host("a,b,c"), "a");
  EXPECT_EQ(first_host("node[01-03,07],login1"), "node01");
  EXPECT_EQ(first_host("node[7]"), "node7");
  EXPECT_EQ(first_host("rack[1-2]n[01-16].site"), "rack1n01.site");
}

TEST(NodeList, NoList) {
  for (const char* bad :
       {"", ",a", "node[", "node[]", "node[a-b]", "node[-3]", "a b", "a]b", "a/b"})
    EXPECT_FALSE(first_host(bad)) << bad;
  EXPECT_FALSE(first_host(std::string(300, 'a')));
  EXPECT_FALSE(first_host("a," + std::string(kNodeListBytesMax, 'b')));
}

TEST(Networks, HaveTheAddressesOfTheirPrefix) {
  EXPECT_EQ(network_of("10.77.3.5", 16), "10.77.0.0/16");
  EXPECT_EQ(network_of("10.77.3.5", 23), "10.77.2.0/23");
  EXPECT_EQ(network_of("10.77.3.5", 32), "10.77.3.5/32");
  EXPECT_EQ(network_of("10.77.3.5", 0), "0.0.0.0/0");
  EXPECT_EQ(network_of("fd00:1:2:3::9", 48), "fd00:1:2::/48");
  for (const int bits : {-1, 33}) EXPECT_EQ(network_of("10.77.3.5", bits), "") << bits;
  EXPECT_EQ(network_of("node1", 16), "");
  const SocketAddress address = numeric_address("10.77.3.5:80").value();
  EXPECT_TRUE(is_within(address, "10.77.0.0/16"));
  EXPECT_FALSE(is_within(address, "10.78.0.0/16"));
  EXPECT_FALSE(is_within(address, "10.77.0.0"));
  EXPECT_FALSE(is_within(address, "fd00:1::/64"));
}

TEST(Networks, OfThisHostHaveALengthOfPrefix) {
  for (const LocalAddress& local : local_addresses(""))
    EXPECT_TRUE(is_within(local.address, network_of(local.address.ip(), local.prefix_bits)))
        << local.address.text() << "/" << local.prefix_bits;
  const auto loopback = local_addresses("lo");
  EXPECT_TRUE(std::ranges::any_of(loopback, [](const LocalAddress& local) {
    return local.address.ip() == "127.0.0.1" && local.prefix_bits == 8;
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap

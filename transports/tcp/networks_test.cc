#include "transports/tcp/networks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ropewalk/status.h"

namespace ropewalk::tcp {
namespace {

using Texts = std::vector<std::string>;

TEST(SharedNetworks, AreThoseOfOneSpeed) {
  EXPECT_EQ(shared_networks(
                {"10.77.0.1/24@10000 10.78.0.1/24@10000", "10.77.0.2/24@10000 10.78.0.2/24@10000"}),
            (Texts{"10.77.0.0/24", "10.78.0.0/24"}));
  EXPECT_EQ(shared_networks({"fd00:1::1/64@200000 fd00:2::1/64@200000",
                             "fd00:2::2/64@200000 fd00:1::2/64@200000"}),
            (Texts{"fd00:1::/64", "fd00:2::/64"}));
}

TEST(SharedNetworks, DoNotDependOnTheOrderOfRanks) {
  Texts infos = {"10.1.0.1/16@100 10.2.0.1/16@100", "10.2.0.2/16@100 10.1.0.2/16@100",
                 "10.1.0.1/16@100 10.2.0.1/16@100"};
  const Texts networks = shared_networks(infos);
  EXPECT_EQ(networks.size(), 2u);
  std::ranges::reverse(infos);
  EXPECT_EQ(shared_networks(infos), networks);
}

TEST(SharedNetworks, LeaveSlowOnesOut) {
  EXPECT_EQ(shared_networks({"10.9.0.1/16@1000 10.1.0.1/16@25000 10.2.0.1/16@25000",
                             "10.9.0.2/16@1000 10.1.0.2/16@25000 10.2.0.2/16@25000"}),
            (Texts{"10.1.0.0/16", "10.2.0.0/16"}));
  EXPECT_EQ(
      shared_networks({"10.1.0.1/16@25000 10.9.0.1/16@1000", "10.1.0.2/16@25000 10.9.0.2/16@1000"}),
      Texts());
  EXPECT_EQ(shared_networks(
                {"10.1.0.1/16@25000 10.2.0.1/16@25000", "10.1.0.2/16@25000 10.2.0.2/16@1000"}),
            Texts());
}

TEST(SharedNetworks, LeaveBridgesOut) {
  EXPECT_EQ(shared_networks(
                {"10.1.0.1/16@10000 172.17.0.1/16@10000", "10.1.0.2/16@10000 172.17.0.1/16@10000"}),
            Texts());
}

TEST(SharedNetworks, MustReachAll) {
  EXPECT_EQ(shared_networks({"10.1.0.1/16@100 10.2.0.1/16@100", "10.1.0.2/16@100 10.2.0.2/16@100",
                             "10.1.0.3/16@100"}),
            Texts());
  EXPECT_EQ(shared_networks({"10.1.0.1/16@100 10.2.0.1/16@100", ""}), Texts());
}

TEST(SharedNetworks, AreNotAskedForOnOneHost) {
  const std::string info = "10.1.0.1/16@100 10.2.0.1/16@100";
  EXPECT_EQ(shared_networks({info, info}), Texts());
}

TEST(SharedNetworks, RefuseNonsense) {
  for (const char* word : {"10.1.0.1", "10.1.0.1/16", "10.1.0.1/33@100", "10.1.0.1/-1@100",
                           "host/16@100", "10.1.0.1@100/16", "10.1.0.1/16@fast", "/@", "/16@100"})
    EXPECT_THROW(shared_networks({word, ""}), Error) << word;
}

TEST(HostRate, IsThatOfTheSlowestHost) {
  EXPECT_EQ(host_bytes_per_s({"10.1.0.1/16@1000", "10.1.0.2/16@10000 10.9.0.2/16@100"}), 125e6);
  EXPECT_EQ(
      host_bytes_per_s({"10.1.0.1/16@1000 10.2.0.1/16@1000", "10.1.0.2/16@1000 10.2.0.2/16@1000"}),
      250e6);
  EXPECT_EQ(host_bytes_per_s({"10.1.0.1/16@1000", ""}), 0);
}

TEST(AdaptersText, IsReadAgain) {
  const std::string text = adapters_text("");
  EXPECT_NO_THROW(shared_networks({text, ""})) << text;
  EXPECT_THROW(adapters_text("no-such-interface"), Error);
}

}  // namespace
}  // namespace ropewalk::tcp

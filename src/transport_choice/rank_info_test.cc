#include "transport_choice/rank_info.h"

#include <gtest/gtest.h>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

TEST(RankInfo, IsReadAsWritten) {
  const RankInfo info{"auto", {0, 1, 2, 7}, "shm2:12:34"};
  EXPECT_EQ(info.text(), "auto;0-2,7;shm2:12:34;;");
  const RankInfo read = RankInfo::parse(info.text());
  EXPECT_EQ(read.transport, info.transport);
  EXPECT_EQ(read.cpus, info.cpus);
  EXPECT_EQ(read.mailbox, info.mailbox);
  EXPECT_TRUE(read.ports.empty());
  EXPECT_EQ(read.no_ports, "");
  EXPECT_EQ(RankInfo::parse("tcp;3;;;").mailbox, "");
}

TEST(RankInfo, TellsOfPorts) {
  const RankInfo info{"verbs",
                      {3},
                      "",
                      {{"mlx5_0", 1, verbs::LinkLayer::ethernet, {"10.0.0.0/8", "fd00::/64"}, 100},
                       {"mlx5_1", 2, verbs::LinkLayer::infiniband, {"fe80::/64"}, 200}}};
  EXPECT_EQ(
      info.text(),
      "verbs;3;;;mlx5_0:1|ethernet|10.0.0.0/8+fd00::/64|100,mlx5_1:2|infiniband|fe80::/64|200");
  EXPECT_EQ(RankInfo::parse(info.text()).ports, info.ports);
}

TEST(RankInfo, TellsWhyThereAreNoPorts) {
  const RankInfo info{"auto", {0}, "m", {}, "mlx5_0 port 1: is DOWN; sudo ip link set eth2 up"};
  EXPECT_EQ(info.text(), "auto;0;m;;!mlx5_0 port 1: is DOWN; sudo ip link set eth2 up");
  EXPECT_EQ(RankInfo::parse(info.text()).no_ports, info.no_ports);
}

TEST(RankInfo, TellsOfUcx) {
  RankInfo info{"ucx", {0}, "", {}, "", "1.13.1", {"rc_mlx5/mlx5_0:1", "no name; at all", "ud/x"}};
  EXPECT_EQ(info.text(), "ucx;0;;1.13.1 rc_mlx5/mlx5_0:1 ud/x;");
  EXPECT_EQ(RankInfo::parse(info.text()).ucx, "1.13.1");
  EXPECT_EQ(RankInfo::parse(info.text()).fabrics,
            (std::vector<std::string>{"rc_mlx5/mlx5_0:1", "ud/x"}));
  info.fabrics.assign(20, "ud/x");
  EXPECT_EQ(RankInfo::parse(info.text()).fabrics.size(), kFabricsMax);
  info.fabrics.clear();
  EXPECT_EQ(info.text(), "ucx;0;;1.13.1;");
  EXPECT_TRUE(RankInfo::parse(info.text()).fabrics.empty());
}

TEST(RankInfo, AReasonIsOneShortLine) {
  const RankInfo info{"auto", {0}, "", {}, "a\nb" + std::string(9999, 'x')};
  const std::string told = RankInfo::parse(info.text()).no_ports;
  EXPECT_EQ(told.size(), kNoPortsBytesMax);
  EXPECT_TRUE(told.starts_with("a bxx") && told.ends_with("x...")) << told;
}

TEST(RankInfo, NonsenseIsRefused) {
  for (const char* text :
       {"", "auto", "auto;0-1", "auto;0-1;m", "auto;0-1;m;", "auto;x;y;;", "auto;0;;;x",
        "auto;0;;;!", "auto;0;;;rxe0:1|ethernet||1,", "auto;0;; ;", "auto;0;;1.13 ;", "auto;0;; x;",
        "auto;0;;1.13  x;", "auto;0;;1.13 a,b;", "auto;0;;v 1 2 3 4 5 6 7 8 9;"})
    EXPECT_THROW(RankInfo::parse(text), Error) << text;
  EXPECT_THROW(RankInfo::parse("auto;0;;;!" + std::string(kNoPortsBytesMax + 1, 'x')), Error);
}

}  // namespace
}  // namespace ropewalk

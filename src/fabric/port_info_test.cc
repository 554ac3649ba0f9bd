#include "fabric/port_info.h"

#include <gtest/gtest.h>

#include "ropewalk/status.h"

namespace ropewalk::verbs {
namespace {

TEST(PortInfo, IsReadAsWritten) {
  const std::vector<PortInfo> ports = {
      {"mlx5_0", 1, LinkLayer::infiniband, {"fe80::/64"}, 200},
      {"rxe0", 2, LinkLayer::ethernet, {"192.168.1.0/24", "fd00:7::/64"}, 3},
      {"bnxt-re.1", 255, LinkLayer::ethernet, {}, 0},
  };
  const std::string text = port_list_text(ports);
  EXPECT_EQ(text,
            "mlx5_0:1|infiniband|fe80::/64|200,rxe0:2|ethernet|192.168.1.0/24+fd00:7::/64|3,"
            "bnxt-re.1:255|ethernet||0");
  EXPECT_EQ(parse_port_list(text), ports);
  EXPECT_TRUE(parse_port_list("").empty());
}

TEST(PortInfo, TheLongestListIsWithinItsLimit) {
  const std::vector<std::string> subnets(kSubnetsMax,
                                         "1111:2222:3333:4444:5555:6666:7777:8888/128");
  const std::vector<PortInfo> ports(kPortsMax, {std::string(kDeviceNameBytesMax, 'm'), 255,
                                                LinkLayer::infiniband, subnets, 999'999});
  const std::string text = port_list_text(ports);
  EXPECT_EQ(text.size(), 2095u);
  EXPECT_EQ(parse_port_list(text), ports);
  EXPECT_THROW(parse_port_list(text + ",rxe0:1|ethernet||1"), Error);
}

TEST(PortInfo, NonsenseIsRefused) {
  for (const char* text : {"x",
                           ",",
                           "rxe0:1|ethernet||1,",
                           ",rxe0:1|ethernet||1",
                           "rxe0|ethernet||1",
                           "rxe0:0|ethernet||1",
                           "rxe0:256|ethernet||1",
                           "rxe0:01|ethernet||1",
                           "rxe0:|ethernet||1",
                           ":1|ethernet||1",
                           "r xe:1|ethernet||1",
                           "rxe0:1|Ethernet||1",
                           "rxe0:1||1",
                           "rxe0:1|ethernet|10.0.0.0/8",
                           "rxe0:1|ethernet|net|1",
                           "rxe0:1|ethernet||",
                           "rxe0:1|ethernet||-1",
                           "rxe0:1|ethernet||1000000",
                           "rxe0:1|ethernet||1|",
                           "a:b:1|ethernet||1",
                           "rxe0:1|ethernet|+|1",
                           "rxe0:1|ethernet|10.0.0.0/8+|1",
                           "rxe0:1|ethernet|+10.0.0.0/8|1",
                           "rxe0:1|ethernet|10.0.0.0/8++11.0.0.0/8|1",
                           "rxe0:1|ethernet|1::/64+2::/64+3::/64+4::/64+5::/64|1",
                           "rxe0:1|ethernet|1111:2222:3333:4444:5555:6666:7777:8888/1280|1"})
    EXPECT_THROW(parse_port_list(text), Error) << text;
}

TEST(PortInfo, NamesOfDevices) {
  EXPECT_TRUE(is_device_name("mlx5_0"));
  EXPECT_TRUE(is_device_name(std::string(kDeviceNameBytesMax, 'x')));
  for (const std::string name : {"", "a b", "a;b", "a,b", "a|b", "a:b", "a/b"})
    EXPECT_FALSE(is_device_name(name)) << name;
  EXPECT_FALSE(is_device_name(std::string(kDeviceNameBytesMax + 1, 'x')));
}

TEST(NoPorts, AReasonIsOneShortLine) {
  const std::string why = "mlx5_0 port 1: is DOWN; sudo ip link set eth2 up";
  EXPECT_EQ(no_ports_text(why), "!" + why);
  EXPECT_EQ(parse_no_ports(no_ports_text(why)), why);
  EXPECT_EQ(parse_no_ports("mlx5_0:1|ethernet||1"), std::nullopt);
  EXPECT_EQ(parse_no_ports(""), std::nullopt);
  const std::string told = *parse_no_ports(no_ports_text("a\nb" + std::string(9999, 'x')));
  EXPECT_EQ(told.size(), kNoPortsBytesMax);
  EXPECT_TRUE(told.starts_with("a bxx") && told.ends_with("x...")) << told;
  EXPECT_THROW(parse_no_ports("!"), Error);
  EXPECT_THROW(parse_no_ports("!" + std::string(kNoPortsBytesMax + 1, 'x')), Error);
}

}  // namespace
}  // namespace ropewalk::verbs

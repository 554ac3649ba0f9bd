#include "transports/verbs/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ropewalk::verbs {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

GidEntry gid(uint32_t index, std::array<uint8_t, 4> ipv4) {
  GidEntry entry{{}, index, GidType::roce_v2, "eth2", {}};
  entry.gid[10] = entry.gid[11] = std::byte{0xff};
  for (size_t i = 0; i < ipv4.size(); ++i) entry.gid[12 + i] = std::byte{ipv4[i]};
  return entry;
}

SeenPort roce() {
  SeenPort port{"mlx5_0", 1, false, 9000, {}};
  port.state.state = IBV_PORT_ACTIVE;
  port.state.link_layer = LinkLayer::ethernet;
  port.state.mtu_active = port.state.mtu_max = IBV_MTU_4096;
  port.state.rate_gbps = 100;
  port.state.interface = "eth2";
  port.state.gids = {gid(3, {10, 0, 0, 1})};
  port.state.gid = choose_gid(port.state.gids, {});
  return port;
}

std::vector<std::string> lines_of(const SeenPort& port) {
  std::vector<std::string> lines;
  for (const Diagnosis& diagnosis : diagnose(port)) lines.push_back(line_of(diagnosis));
  return lines;
}

TEST(DoctorPorts, AHealthyRocePort) {
  EXPECT_THAT(
      lines_of(roce()),
      testing::ElementsAre(
          "ok   rdma mlx5_0 port 1: ACTIVE, RoCE on eth2, 100 Gb/s, packets of 4096 bytes",
          "ok   rdma mlx5_0 port 1 GIDs: 3 10.0.0.1 (RoCE v2); takes 3: RoCE v2, an IPv4 address"));
}

TEST(DoctorPorts, ShortPacketsAreTheNetworkDevicesFault) {
  SeenPort port = roce();
  port.interface_mtu = 1500;
  port.state.mtu_active = IBV_MTU_1024;
  const auto lines = lines_of(port);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[2],
            "warn rdma mlx5_0 port 1 MTU: packets of 1024 bytes, because eth2 has an MTU of 1500: "
            "raise it on all hosts and switches; advice: sudo ip link set eth2 mtu 9000");
  // Where the adapter can do no more there is nothing to mend.
  port.state.mtu_max = IBV_MTU_1024;
  EXPECT_THAT(lines_of(port), SizeIs(2));
}

TEST(DoctorPorts, AProblemComesWithItsFix) {
  SeenPort port = roce();
  port.state.state = IBV_PORT_DOWN;
  port.state.mtu_active = IBV_MTU_1024;
  port.state.problem = "is DOWN";
  port.state.advice = "sudo ip link set eth2 up";
  const auto lines = lines_of(port);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0], "warn rdma mlx5_0 port 1: is DOWN; advice: sudo ip link set eth2 up");
}

TEST(DoctorPorts, InfiniBandHasALidAndNoMtuToSet) {
  SeenPort port = roce();
  port.state.link_layer = LinkLayer::infiniband;
  port.state.interface.clear();
  port.state.lid = 7;
  port.state.mtu_active = IBV_MTU_2048;
  port.state.gids.clear();
  port.state.gid = {};
  EXPECT_THAT(lines_of(port),
              testing::ElementsAre("ok   rdma mlx5_0 port 1: ACTIVE, InfiniBand, 100 Gb/s, LID 7, "
                                   "packets of 2048 bytes"));
}

TEST(DoctorPorts, ALongTableIsCut) {
  SeenPort port = roce();
  for (uint32_t i = 4; i < 20; ++i) port.state.gids.push_back(gid(i, {10, 0, 0, 9}));
  EXPECT_THAT(lines_of(port)[1], AllOf(HasSubstr(", 9 more; takes 3"), HasSubstr("10 10.0.0.9")));
}

TEST(DoctorPorts, SoftwareIsSaid) {
  SeenPort port = roce();
  port.is_software = true;
  EXPECT_THAT(lines_of(port)[0], HasSubstr("made in software"));
}

}  // namespace
}  // namespace ropewalk::verbs

#include "integrations/nccl/devices.h"

#include <gtest/gtest.h>

namespace ropewalk::nccl {
namespace {

std::vector<int> rails_of(const std::vector<std::string>& subnets) {
  std::vector<Device> devices(subnets.size());
  for (size_t i = 0; i < subnets.size(); ++i) devices[i].subnet = subnets[i];
  number_rails(devices);
  std::vector<int> rails;
  for (const Device& device : devices) rails.push_back(device.rail);
  return rails;
}

TEST(Devices, OfSeveralNetworksAreRails) {
  EXPECT_EQ(rails_of({"10.78.0.0/24", "10.77.0.0/24", "10.78.0.0/24"}),
            (std::vector<int>{1, 0, 1}));
}

TEST(Devices, OfOneNetworkAreNoRails) {
  EXPECT_EQ(rails_of({"10.77.0.0/24", "10.77.0.0/24"}), (std::vector<int>{-1, -1}));
}

TEST(Devices, OfUnknownNetworksAreNoRails) {
  EXPECT_EQ(rails_of({"10.78.0.0/24", "", "10.77.0.0/24"}), (std::vector<int>{1, -1, 0}));
}

TEST(Devices, AreTheInterfacesThatWereAskedFor) {
  Config config;
  config.transport = "tcp";
  config.socket_ifname = "lo";
  const std::vector<Device> devices = find_devices(config);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "lo");
  EXPECT_TRUE(devices[0].addresses.at(0).is_loopback());
  EXPECT_GT(devices[0].speed_mbps, 0);
  EXPECT_TRUE(devices[0].make[0] && devices[0].make[1]);
}

std::string why_not(const Config& config) {
  try {
    find_devices(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "found";
}

TEST(Devices, AreNotWhatCannotBe) {
  Config config;
  config.transport = "ucx";
  EXPECT_NE(why_not(config).find("ROPEWALK_TRANSPORT=ucx"), std::string::npos);
  config.transport = "auto";
  config.secure = true;
  EXPECT_NE(why_not(config).find("without a ROPEWALK_JOB_KEY"), std::string::npos);
  config.job_key = "0123456789abcdef0123456789abcdef";
  config.require = "rdma";
  EXPECT_NE(why_not(config).find("nothing seals"), std::string::npos);
}

}  // namespace
}  // namespace ropewalk::nccl

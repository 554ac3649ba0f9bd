// Ports as the kernel shows them, and what is said of those that cannot be used.
#include "transports/verbs/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/lock_limit.h"
#include "ropewalk/status.h"
#include "tests/rdma/machine.h"
#include "transports/verbs/devices.h"
#include "transports/verbs/port_state.h"

namespace ropewalk::verbs {
namespace {

using ropewalk::testing::kAdapter;
using ropewalk::testing::kNetworkDevice;
using ropewalk::testing::output_of;
using ropewalk::testing::shell;
using ropewalk::testing::Unplugged;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<std::string> reasons(const PortPreference& preference = {}) {
  const UsablePorts usable = find_ports(preference);
  EXPECT_TRUE(usable.ports.empty());
  return usable.why_not;
}

Port the_port(const PortPreference& preference = {}) {
  const auto [ports, infos, why_not] = find_ports(preference);
  EXPECT_EQ(ports.size(), 1u) << (why_not.empty() ? "" : why_not.front());
  EXPECT_EQ(infos.size(), ports.size());
  return ports.at(0);
}

/// As a rank that started now would tell.
std::vector<std::string> subnets_now() {
  return find_ports({}).infos.at(0).subnets;
}

/// The network device's address without its prefix: "10.99.0.1".
std::string own_ipv4() {
  const std::string text = output_of(std::string("ip -4 -o addr show dev ") + kNetworkDevice +
                                     " | sed 's/.*inet \\([0-9.]*\\).*/\\1/'");
  return text.substr(0, text.find('\n'));
}

/// Soon: the kernel changes ports and tables in the background.
void expect_address(const Port& port, const std::string& ipv4) {
  std::string last;
  for (int tries = 0; tries < 100 && last != ipv4; ++tries) {
    try {
      last = text_of(address_of(port, {}).gid);
    } catch (const Error& error) {
      last = error.what();
    }
    if (last != ipv4) usleep(100'000);
  }
  EXPECT_EQ(last, ipv4);
}

TEST(Adapters, AreOpenedWithTheirLimits) {
  const DeviceList list;
  ASSERT_EQ(list.devices().size(), 1u);
  EXPECT_TRUE(list.missing().empty());
  EXPECT_TRUE(has_reliable_connections(*list.devices()[0]));
  const Adapter adapter(list.devices()[0]);
  EXPECT_EQ(adapter.name(), kAdapter);
  EXPECT_GT(adapter.limits().max_qp_wr, 0);
  EXPECT_GT(adapter.limits().max_cqe, 0);
  EXPECT_NE(adapter.pd(), nullptr);
  EXPECT_TRUE(is_software(adapter.name()));
}

TEST(Adapters, LeaveNothingOpen) {
  const std::string before = output_of("ls /proc/self/fd | wc -l; rdma resource show pd");
  {
    const Port port = the_port();
    EXPECT_NE(output_of("rdma resource show pd"), "");
  }
  EXPECT_EQ(output_of("ls /proc/self/fd | wc -l; rdma resource show pd"), before);
}

TEST(Ports, TheAddressOfThePortIsThatOfItsNetworkDevice) {
  const Port port = the_port();
  EXPECT_EQ(port.adapter->name(), kAdapter);
  EXPECT_EQ(port.number, 1);
  const PortAddress address = address_of(port, {});
  EXPECT_EQ(address.link_layer, LinkLayer::ethernet);
  EXPECT_EQ(text_of(address.gid), own_ipv4());
  EXPECT_GE(address.mtu, IBV_MTU_1024);
  const PortInfo info = find_ports({}).infos.at(0);
  EXPECT_EQ(info.device, kAdapter);
  EXPECT_THAT(info.subnets,
              ElementsAre(InterfaceAddresses().network_of(kNetworkDevice, address.gid)));
  EXPECT_THAT(info.subnets, ElementsAre(HasSubstr("/")));
  EXPECT_GT(info.rate_gbps, 0u);
  EXPECT_EQ(parse_port_list(port_list_text({info})), std::vector<PortInfo>{info});
}

// What a peer is told must be what holds now, not when the port was found.
TEST(Ports, AddressesAreQueriedAfresh) {
  const Port port = the_port();
  const std::string device = kNetworkDevice;
  const std::string own = own_ipv4();
  shell("ip addr add 10.98.0.7/16 dev " + device);
  shell("ip addr del " + own + "/24 dev " + device);
  expect_address(port, "10.98.0.7");
  EXPECT_THAT(subnets_now(), ElementsAre("10.98.0.0/16"));
  shell("ip addr add " + own + "/24 dev " + device);
  shell("ip addr del 10.98.0.7/16 dev " + device);
  expect_address(port, own);
}

// A peer may be in the second address' subnet only.
TEST(Ports, AnAddressIsChosenByTheSubnetOfThePeer) {
  const Port port = the_port();
  const std::string device = kNetworkDevice;
  const std::string own = own_ipv4();
  shell("ip addr add 10.98.0.7/16 dev " + device);
  for (int tries = 0; tries < 100 && subnets_now().size() < 2; ++tries) usleep(100'000);
  EXPECT_THAT(subnets_now(), UnorderedElementsAre("10.99.0.0/24", "10.98.0.0/16"));
  EXPECT_EQ(text_of(address_of(port, {}, "10.98.0.0/16").gid), "10.98.0.7");
  EXPECT_EQ(text_of(address_of(port, {}, "10.99.0.0/24").gid), own);
  EXPECT_EQ(text_of(address_of(port, {}, "10.97.0.0/16").gid), text_of(address_of(port, {}).gid));
  shell("ip addr del 10.98.0.7/16 dev " + device);
}

TEST(Ports, TheGidIndexIsHeeded) {
  const PortPreference first{"", 0};
  const PortAddress address = address_of(the_port(first), first);
  EXPECT_EQ(address.gid_index, 0);
  EXPECT_THAT(text_of(address.gid), HasSubstr("fe80::"));
  EXPECT_THAT(reasons({"", 200}),
              ElementsAre(AllOf(HasSubstr(kAdapter), HasSubstr("ROPEWALK_IB_GID_INDEX=200"),
                                HasSubstr("fe80::"), HasSubstr("correct or unset"))));
}

TEST(Ports, TheListOfDevicesIsHeeded) {
  the_port({"rxe", {}});
  the_port({"=rxe0:1", {}});
  the_port({"^mlx5", {}});
  EXPECT_THAT(reasons({"mlx5_0", {}}), ElementsAre("rxe0: ROPEWALK_IB_HCA=mlx5_0 leaves it out"));
  EXPECT_THAT(reasons({"rxe0:2", {}}),
              ElementsAre("rxe0 port 1: ROPEWALK_IB_HCA=rxe0:2 leaves it out"));
  EXPECT_THROW(find_ports({"=", {}}), Error);
}

TEST(Ports, APortThatIsDownIsNamedWithTheCommandThatMendsIt) {
  const Port port = the_port();
  {
    const Unplugged unplugged;
    EXPECT_THAT(reasons(), ElementsAre("rxe0 port 1: is DOWN; sudo ip link set link0 up"));
    try {
      address_of(port, {});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_EQ(error.failure().reason, "rxe0 port 1: is DOWN");
      EXPECT_EQ(error.failure().advice, "sudo ip link set link0 up");
    }
  }
  expect_address(port, own_ipv4());
}

TEST(Ports, TooLittleMemoryToLockCountsAsUnusable) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{size_t{8} << 20, before.rlim_max};
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct all[2]{}, less[2]{};
  ASSERT_EQ(syscall(SYS_capget, &header, all), 0);
  std::copy(all, all + 2, less);
  less[0].effective &= ~(1u << CAP_IPC_LOCK);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  ASSERT_EQ(syscall(SYS_capset, &header, less), 0);
  EXPECT_THAT(reasons(), ElementsAre(AllOf(HasSubstr("8 MiB can be locked"),
                                           HasSubstr(advice(lock_limit())))));
  ASSERT_EQ(syscall(SYS_capset, &header, all), 0);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
  the_port();
}

TEST(Ports, ADeviceThatMayNotBeOpenedIsNamedWithTheCommandThatMendsIt) {
  shell("chmod 000 /dev/infiniband/uverbs0");
  const pid_t child = fork();
  if (child == 0) {
    const bool told = setresuid(65534, 65534, 65534) == 0 && [] {
      for (const std::string& why : reasons())
        if (why.find("chmod a+rw /dev/infiniband/uverbs0") != std::string::npos) return true;
      return false;
    }();
    _exit(told ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  shell("chmod 666 /dev/infiniband/uverbs0");
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ropewalk::verbs

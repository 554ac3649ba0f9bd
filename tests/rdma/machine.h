// What tests do to the network of the machine of tools/rdma-vm, and undo.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace ropewalk::testing {

inline constexpr const char* kNetworkDevice = "link0";
inline constexpr const char* kAdapter = "rxe0";

/// Runs it in a shell; fails the test where it fails.
inline void shell(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

inline std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 256> part;
  while (pipe != nullptr && std::fgets(part.data(), part.size(), pipe) != nullptr)
    text += part.data();
  if (pipe != nullptr) ::pclose(pipe);
  return text;
}

/// Memory regions and queue pairs of processes that the kernel keeps for the adapter.
inline std::string objects_in_use() {
  return output_of("rdma resource show mr; rdma resource show qp | grep -v 'pid 0\\|comm \\['");
}

/// Packets that the adapter has sent since it was made.
inline long packets_sent_by(const std::string& adapter) {
  return std::atol(
      output_of("cat /sys/class/infiniband/" + adapter + "/ports/1/hw_counters/sent_pkts").c_str());
}

/// Takes the network device down; up again at its end.
class Unplugged {
 public:
  explicit Unplugged(const std::string& device = kNetworkDevice) : device_(device) {
    shell("ip link set down dev " + device_);
  }
  ~Unplugged() { shell("ip link set up dev " + device_); }

 private:
  const std::string device_;
};

/// As the machine makes those that it has from its start (tools/rdma_vm/node): rxe0 on link0,
/// rxe1 on link1.
inline void make_adapter(int number = 0) {
  const std::string n = std::to_string(number);
  shell("ip link show dev link" + n + " >/dev/null 2>&1 || { ip link add link" + n +
        " type veth peer name end" + n + " && ip link set end" + n +
        " mtu 9000 up && ip link set link" + n + " mtu 9000 up && ip address add 10.99." + n +
        ".1/24 dev link" + n + "; }");
  shell("rdma link add rxe" + n + " type rxe netdev link" + n);
}

/// There is a second adapter, rxe1, for as long as the program's tests run.
class SecondAdapter final : public ::testing::Environment {
 public:
  void SetUp() override { make_adapter(1); }
  void TearDown() override { shell("rdma link del rxe1 && ip link del link1"); }
};

}  // namespace ropewalk::testing

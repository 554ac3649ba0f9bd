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

/// Takes the network device down; up again at its end.
class Unplugged {
 public:
  Unplugged() { shell(std::string("ip link set down dev ") + kNetworkDevice); }
  ~Unplugged() { shell(std::string("ip link set up dev ") + kNetworkDevice); }
};

/// What the machine has from its start (tools/rdma_vm/node).
inline void make_adapter() {
  shell(
      "ip link show dev link0 >/dev/null 2>&1 || { ip link add link0 type veth peer name end0 && "
      "ip link set end0 mtu 9000 up && ip link set link0 mtu 9000 up && "
      "ip address add 10.99.0.1/24 dev link0; }");
  shell("rdma link add rxe0 type rxe netdev link0");
}

}  // namespace ropewalk::testing

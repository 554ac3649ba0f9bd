// A job on loopback opened ports of all interfaces for its parts, and ROPEWALK_SOCKET_IFNAME
// limited what other ranks were told, not what listened.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/net.h"
#include "ropewalk/policies.h"
#include "ropewalk/rendezvous.h"
#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

/// Where sockets of this process listen that others than this host can reach.
std::vector<std::string> open_doors() {
  std::vector<std::string> doors;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t length = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) continue;
    const auto address = bootstrap::local_address(fd);
    const bool is_tcp = address.family() == AF_INET || address.family() == AF_INET6;
    if (is_tcp && !address.is_loopback()) doors.push_back(address.text());
  }
  return doors;
}

class PortsOfAJob : public ::testing::TestWithParam<std::string> {};

TEST_P(PortsOfAJob, OnLoopbackAreThereAlone) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    EXPECT_EQ(open_doors(), std::vector<std::string>());
    const auto part = comm.split(comm.rank() / 2);
    const auto part_of_part = part->split(0);
    EXPECT_EQ(open_doors(), std::vector<std::string>());
    const AsyncEa<float> ea(comm, 1, 0.5);
    EXPECT_EQ(open_doors(), std::vector<std::string>());
    comm.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, PortsOfAJob, ::testing::Values("tcp", "shm"));

TEST(PortsOfAnInterface, AreThereAlone) {
  setenv("ROPEWALK_SOCKET_IFNAME", "lo", 1);
  {
    const Rendezvous rendezvous;
    EXPECT_EQ(open_doors(), std::vector<std::string>());
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const auto comm =
            Communicator::create(rank == 0 ? rendezvous.options(0, 2)
                                           : Rendezvous::options(rendezvous.unique_id(), rank, 2));
        EXPECT_EQ(open_doors(), std::vector<std::string>());
        comm->barrier();
      });
    for (std::thread& rank : ranks) rank.join();
  }
  unsetenv("ROPEWALK_SOCKET_IFNAME");
}

}  // namespace
}  // namespace ropewalk::testing

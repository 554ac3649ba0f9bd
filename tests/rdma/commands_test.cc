// What `ropewalk doctor` says of a real port, and which transport jobs choose by themselves. A host
// of its own is made for a rank by a process namespace of its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/rdma/machine.h"

namespace ropewalk::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ropewalk_program;

/// Both ranks of a job on two hosts run a short `bench`; what they say, and "exit N" for each.
std::string job_on_two_hosts(const std::string& environment, const std::string& of_rank_1 = "") {
  static int port = 29600;
  const auto rank = [&](int number, const std::string& more) {
    return fmt::format(
        "( {} {} ROPEWALK_LOG=info ROPEWALK_RANK={} ROPEWALK_SIZE=2 "
        "ROPEWALK_COORDINATOR=127.0.0.1:{} timeout 60 unshare --pid --fork --kill-child {} bench "
        "all_reduce --sizes 64K --iterations 2 --json; echo exit $? ) 2>&1",
        environment, more, number, port, ropewalk_program);
  };
  const std::string text = output_of(rank(1, of_rank_1) + " & " + rank(0, "") + "; wait");
  ++port;
  return text;
}

TEST(Doctor, TellsOfThePortAndWhatIsTakenOfIt) {
  const std::string text = output_of(ropewalk_program + " doctor");
  EXPECT_THAT(text, AllOf(HasSubstr("ok   rdma modules: ib_uverbs is there; drivers: rdma_rxe"),
                          HasSubstr("ok   rdma rxe0 port 1: ACTIVE, RoCE on link0"),
                          HasSubstr("ok   rdma choice: rxe0:1|ethernet|")));
  EXPECT_THAT(text, HasSubstr("RoCE v2, an IPv4 address"));
}

TEST(Doctor, NamesShortPackets) {
  const std::string device = kNetworkDevice;
  shell("ip link set " + device + " mtu 1500");
  const std::string text = output_of(ropewalk_program + " doctor");
  shell("ip link set " + device + " mtu 9000");
  EXPECT_THAT(text, HasSubstr("packets of 1024 bytes, because link0 has an MTU of 1500"));
  EXPECT_THAT(text, HasSubstr("advice: sudo ip link set link0 mtu 9000"));
}

TEST(Doctor, FailsOnlyWhereRdmaIsDemanded) {
  const Unplugged unplugged;
  EXPECT_THAT(output_of(ropewalk_program + " doctor; echo exit $?"),
              AllOf(HasSubstr("warn rdma rxe0 port 1: is DOWN; advice: sudo ip link set link0 up"),
                    HasSubstr("exit 0")));
  EXPECT_THAT(output_of("ROPEWALK_REQUIRE=rdma " + ropewalk_program + " doctor; echo exit $?"),
              AllOf(HasSubstr("FAIL rdma choice"), HasSubstr("exit 1")));
}

TEST(PlanDecision, ASliceThatThePortCannotMoveIsRefusedAtTheStart) {
  const std::string text = job_on_two_hosts("ROPEWALK_REQUIRE=rdma ROPEWALK_SLICE_BYTES=64M");
  EXPECT_THAT(text, AllOf(HasSubstr("ROPEWALK_SLICE_BYTES is 67108864"), HasSubstr("verbs moves"),
                          HasSubstr("set ROPEWALK_SLICE_BYTES=8388608 on every rank"),
                          Not(HasSubstr("exit 0"))));
}

TEST(PlanDecision, BetweenHostsVerbsAreTakenByThemselves) {
  const std::string text = job_on_two_hosts("ROPEWALK_REQUIRE=rdma");
  EXPECT_THAT(text, AllOf(HasSubstr("verbs between all ranks; every rank has a usable RDMA port"),
                          HasSubstr("\"transport\":\"verbs\""), HasSubstr("\"wrong\":0")));
  EXPECT_THAT(text, AllOf(HasSubstr("exit 0"), Not(HasSubstr("exit 1"))));
}

TEST(PlanDecision, WhereOneRankCannotTcpIsTakenWithAWarning) {
  const std::string text = job_on_two_hosts("", "ROPEWALK_IB_HCA=mlx5");
  EXPECT_THAT(text,
              AllOf(HasSubstr("warn: 2 ranks on 2 hosts: tcp between all ranks; rank 1 (host"),
                    HasSubstr("rxe0: ROPEWALK_IB_HCA=mlx5 leaves it out"),
                    HasSubstr("\"transport\":\"tcp\"")));
}

TEST(PlanDecision, RequiringRdmaRefusesToFallBack) {
  const std::string text = job_on_two_hosts("ROPEWALK_REQUIRE=rdma", "ROPEWALK_IB_HCA=mlx5");
  EXPECT_THAT(
      text, AllOf(HasSubstr("ROPEWALK_REQUIRE=rdma, but rank 1 (host"),
                  HasSubstr("rxe0: ROPEWALK_IB_HCA=mlx5 leaves it out"), Not(HasSubstr("exit 0"))));
}

TEST(PlanDecision, ExplainForetellsIt) {
  EXPECT_THAT(output_of(ropewalk_program + " explain all_reduce --bytes 1M -n 4 --hosts 2"),
              HasSubstr("shm within hosts, verbs between them: every rank has a usable RDMA port"));
}

}  // namespace
}  // namespace ropewalk::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  ropewalk::testing::ropewalk_program = argv[1];
  return RUN_ALL_TESTS();
}

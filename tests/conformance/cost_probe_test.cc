// What links cost is measured, and all ranks hear the same.
#include "communicator/cost_probe.h"

#include <gtest/gtest.h>

#include <mutex>

#include "ropewalk/status.h"
#include "tests/local_world.h"

namespace ropewalk {
namespace {

Costs constants() {
  return {.model = {.intra = {1e-6, 2e-7, 1e-10},
                    .inter = {7e-6, 3e-6, 5e-10},
                    .reduce_s_per_byte = 1e-10}};
}

/// What every rank hears; `measures` on rank 0, the contrary elsewhere.
std::vector<Costs> agreed(const std::vector<int>& hosts, bool measures) {
  std::vector<Costs> heard(hosts.size());
  testing::run_ranks(static_cast<int>(hosts.size()), "tcp", [&](Communicator& comm) {
    const bool wish = comm.rank() == 0 ? measures : !measures;
    heard[static_cast<size_t>(comm.rank())] = agree_on_costs(comm, hosts, constants(), wish);
  });
  return heard;
}

TEST(CostProbe, AllRanksHearTheSame) {
  for (const std::vector<int>& hosts : std::vector<std::vector<int>>{
           {0, 1}, {0, 1, 2}, {0, 0, 1, 2, 2}, {3, 1, 3, 1, 0, 0, 0}, {0, 1, 2, 3, 4, 5}}) {
    const std::vector<Costs> heard = agreed(hosts, true);
    EXPECT_EQ(heard[0].inter, CostSource::probe);
    EXPECT_GT(heard[0].model.inter.latency_s + heard[0].model.inter.overhead_s, 0);
    EXPECT_GT(heard[0].model.inter.s_per_byte, 0);
    EXPECT_NE(heard[0].model.inter.s_per_byte, constants().model.inter.s_per_byte);
    EXPECT_GT(heard[0].model.reduce_s_per_byte, 0);
    EXPECT_TRUE(heard[0].model.intra == constants().model.intra);
    for (const Costs& costs : heard) EXPECT_TRUE(costs == heard[0]);
  }
}

TEST(CostProbe, RankZeroSaysWhetherThereIsOne) {
  for (const Costs& costs : agreed({0, 1, 2, 2}, false)) EXPECT_TRUE(costs == constants());
}

TEST(CostProbe, ThereIsNoneWithinAHost) {
  for (const Costs& costs : agreed({0, 0, 0}, true)) EXPECT_TRUE(costs == constants());
}

TEST(CostProbe, ARankThatEndsMeanwhileIsNamed) {
  std::mutex mutex;
  std::vector<Failure> failures;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 2) comm.abort("no more");
    try {
      agree_on_costs(comm, {0, 1, 2, 3}, constants(), true);
    } catch (const Error& error) {
      std::lock_guard lock(mutex);
      failures.push_back(error.failure());
    }
  };
  testing::run_ranks(4, "tcp", body);
  ASSERT_EQ(failures.size(), 4u);
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.code, ErrorCode::aborted);
    EXPECT_EQ(failure.peer, 2);
  }
}

}  // namespace
}  // namespace ropewalk

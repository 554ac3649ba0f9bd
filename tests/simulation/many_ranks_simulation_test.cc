// Engines of many ranks over a fake network, in one thread and in virtual time. They link as they
// need and sum 8 bytes. TEST_SIMULATED_RANKS=1024 tries more of them, and prints what it took.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/simulation/simulated_job.h"

namespace ropewalk::testing {
namespace {

int simulated_ranks() {
  const char* text = std::getenv("TEST_SIMULATED_RANKS");
  return text != nullptr ? std::max(std::atoi(text), 2) : 64;
}

double resident_of_this_process_mib() {
  std::ifstream statm("/proc/self/statm");
  double all = 0, resident = 0;
  statm >> all >> resident;
  return resident * 4096 / (1 << 20);
}

class ManySimulatedRanks : public ::testing::TestWithParam<Algorithm> {};

TEST_P(ManySimulatedRanks, LinkAndSum) {
  const int ranks = simulated_ranks();
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  FakeOptions options;
  options.full_probability = 0;
  SimulatedJob job(ranks, 1, options);
  std::vector<double> sums(static_cast<size_t>(ranks));
  std::vector<std::shared_ptr<Operation>> operations;
  for (int rank = 0; rank < ranks; ++rank) {
    double& own = sums[static_cast<size_t>(rank)] = rank;
    const ScheduleKey key{Collective::all_reduce, GetParam(), ranks, 0, {}};
    operations.push_back(job.engine(rank).prepare(Call::all_reduce(std::span(&own, 1)),
                                                  build_schedule(key, rank), GetParam(), 64 << 10));
    job.engine(rank).start(*operations.back());
  }
  const auto done = [&](int rank) {
    return operations[static_cast<size_t>(rank)]->state == Operation::State::done;
  };
  const int64_t virtual_begin_ns = job.clock().now_ns();
  EXPECT_EQ(job.run(done, [](int) {}), "");
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(job.engine(rank).failures().failure(), nullptr) << rank;
    EXPECT_EQ(sums[static_cast<size_t>(rank)], 0.5 * ranks * (ranks - 1)) << rank;
  }
  std::printf("%d ranks, %s: %.1f us of virtual time, %.2f s, %.0f MiB\n", ranks,
              std::string(name_of(GetParam())).c_str(),
              static_cast<double>(job.clock().now_ns() - virtual_begin_ns) * 1e-3,
              static_cast<double>(clock.now_ns() - begin_ns) * 1e-9,
              resident_of_this_process_mib());
}

INSTANTIATE_TEST_SUITE_P(Every, ManySimulatedRanks,
                         ::testing::Values(Algorithm::recursive_doubling, Algorithm::tree),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace ropewalk::testing

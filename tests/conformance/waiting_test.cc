// A rank that waits long for another leaves its CPU to others, with nothing configured.
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <thread>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

class Waiting : public ::testing::TestWithParam<std::string> {};

TEST_P(Waiting, UsesLittleOfTheCpu) {
  run_ranks(4, GetParam(), [](Communicator& comm) {
    auto buffer = comm.allocate<float>(1 << 16);
    Call call;
    call.in = call.out = buffer.data();
    call.count = buffer.size();
    Plan plan = comm.plan(call);
    plan.run();
    if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::seconds(1));
    const double wall_s = seconds_of(CLOCK_MONOTONIC);
    const double cpu_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    plan.run();
    const double waited_s = seconds_of(CLOCK_MONOTONIC) - wall_s;
    const double used_s = seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_s;
    if (comm.rank() != 3) {
      EXPECT_LT(used_s, 0.1 * slowness() * waited_s) << "rank " << comm.rank();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Waiting, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing

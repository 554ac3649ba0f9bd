// A killed rank whose forked children lived on, such as a data loader's workers, had died unheard:
// they held its connections. Its peers waited until their timeout.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class PastForkedChildren : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, PastForkedChildren, ::testing::ValuesIn(transports_of_jobs()));

TEST_P(PastForkedChildren, ADeathIsHeard) {
  constexpr int kRanks = 2, kVictim = 1;  // where hosts differ, each alone on its own
  std::array<int, 2> lives;               // readable in the child at the test's end
  ASSERT_EQ(::pipe(lives.data()), 0);
  Options options;
  options.size = kRanks;
  options.transport = GetParam();
  options.timeout = std::chrono::seconds(60);
  ForkedJob job(kRanks, options, [&](Communicator& comm) {
    std::vector<float> data(1000);
    comm.all_reduce(data);
    if (comm.rank() == kVictim && ::fork() == 0) {
      ::close(lives[1]);
      char none;
      [[maybe_unused]] const ssize_t n = ::read(lives[0], &none, 1);
      ::_exit(0);
    }
    ::close(lives[1]);
    reduce_for_ever(comm);
  });
  sleep_s(0.1);
  job.mark();
  job.signal(kVictim, SIGKILL);
  expect_named(job.verdicts(kVictim, 20 * slowness()), kVictim, 20);
  ::close(lives[0]);
  ::close(lives[1]);
}

}  // namespace
}  // namespace ropewalk::testing

// Ranks that are killed while they exchange with the center: every survivor names the culprit.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "ropewalk/policies.h"
#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr int kWorkers = 4;

/// How many ranks exchange, for the test to see.
std::atomic<int>* ready() {
  static auto* const count = new (::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
  return count;
}

void exchange_for_ever(Communicator& comm, int tau) {
  AsyncEa<double> ea(comm, tau, 0.25);
  std::vector<double> values(200'000, comm.rank());
  const std::array parameters = {std::span(values)};
  ea.synchronize_center(parameters);
  ++*ready();
  for (;;) {
    const std::vector<double> before = values;
    try {
      ea.average_parameters(parameters);
      if (tau > 1) sleep_s(0.001);
    } catch (const Error&) {
      if (values != before) throw Error(ErrorCode::system, "test", "the parameters have changed");
      throw;
    }
    for (double& value : values) value += comm.rank();
  }
}

class AsyncEaFaults : public ::testing::TestWithParam<std::string> {};

TEST_P(AsyncEaFaults, EveryKillIsNamedWithinASecond) {
  const int kills = kills_under_test(30);
  std::mt19937 random(20240501);
  for (int i = 0; i < kills; ++i) {
    // Some exchange without pause; some are killed while the others are between exchanges.
    const int tau = i % 3 == 2 ? 1'000'000 : 1;
    Options options;
    options.size = kWorkers;
    options.transport = GetParam();
    *ready() = 0;
    ForkedJob job(kWorkers, options, [tau](Communicator& comm) { exchange_for_ever(comm, tau); });
    const int victim = static_cast<int>(random() % kWorkers);
    while (*ready() < kWorkers) sleep_s(0.001);
    sleep_s(static_cast<double>(random() % 40'000) / 1e6);
    job.mark();
    job.signal(victim, SIGKILL);
    expect_named(job.verdicts(victim, 5), victim, 1.0);
    if (HasFailure()) FAIL() << "kill " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, AsyncEaFaults, ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing

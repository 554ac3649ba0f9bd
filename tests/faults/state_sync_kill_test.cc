// A source that is killed while it sends the state, real processes.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class StateSyncFaults : public ::testing::TestWithParam<std::string> {};

constexpr int kVictim = 1;

/// Ranks 0 and 1 have the state.
void lose_a_source(Communicator& comm) {
  const bool has_state = comm.rank() < 2;
  std::vector<uint64_t> state(4 << 20, has_state ? 7 : 0);
  const auto wanted = std::vector<uint64_t>(state.size(), 7);
  const std::vector<NamedBuffer> buffers{{"state", state}};
  try {
    StateSync sync = comm.start_sync_state(buffers, has_state ? 1 : 0);
    // Nothing moves without a call. What sockets hold arrives all the same, and may be all.
    if (comm.rank() == kVictim) ::raise(SIGKILL);
    sync.wait();
    require(state == wanted, "it has ended well without the state");
    comm.barrier();
    throw std::runtime_error("nobody misses the lost rank");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::peer_lost && error.peer() == kVictim, error.what());
  }
  require(!has_state || state == wanted, "a source has lost its state");
  const auto next = comm.shrink();
  const StateReport report = next->sync_state(buffers, has_state ? 1 : 0);
  require(report.sources.front() == 0 && state == wanted, "not all have the state");
  comm.leave();
  next->leave();
}

TEST_P(StateSyncFaults, AKilledSourceIsNamedAndTheOthersBeginAnew) {
  Options options;
  options.size = 4;
  options.transport = GetParam();
  options.timeout = std::chrono::seconds(20);
  options.progress_thread = false;
  ForkedJob job(4, options, lose_a_source);
  expect_success(job.verdicts(kVictim, 60 * slowness()), {kVictim});
}

INSTANTIATE_TEST_SUITE_P(Transports, StateSyncFaults, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

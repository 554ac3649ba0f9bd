// Ranks that are killed while the state is sent, real processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr int kSyncing = 4;
constexpr size_t kStateElements = 4 << 20;

/// Shared by forked processes.
struct SyncBoard {
  std::atomic<bool> has_begun{false};  // bytes of the victim's part have arrived
  std::atomic<bool> has_sent{false};   // the victim, its part

  static std::shared_ptr<SyncBoard> make() {
    void* at = ::mmap(nullptr, sizeof(SyncBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) SyncBoard, [](SyncBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

/// The first ranks have the state, and send equal parts of it, in the order of their ranks.
struct Loss {
  enum class When { at_first, halfway, after_its_part };
  int sources = 3;
  int victim = 1;
  When when = When::at_first;

  /// On the victim: returns when it is to die.
  void await(StateSync& sync, SyncBoard& board) const {
    if (when == When::halfway)
      while (!board.has_begun) sync.done();
    if (when == When::after_its_part) {
      while (!sync.done()) {
      }
      board.has_sent = true;
    }
  }
  /// On the others.
  void lead_up_to(StateSync& sync, SyncBoard& board, bool is_source,
                  const std::vector<uint64_t>& state) const {
    const volatile uint64_t& of_victims_part =
        state[static_cast<size_t>(victim % sources) * kStateElements /
                  static_cast<size_t>(sources) +
              1000];
    if (when == When::halfway && !is_source)
      while (of_victims_part == 0) sync.done();
    if (when == When::halfway && !is_source) board.has_begun = true;
    if (when == When::after_its_part && is_source)
      while (!board.has_sent) sleep_s(0.0001);
  }
};

void lose_one(Communicator& comm, const Loss& loss, SyncBoard& board) {
  const bool is_source = comm.rank() < loss.sources;
  std::vector<uint64_t> state(kStateElements, is_source ? 7 : 0);
  const auto wanted = std::vector<uint64_t>(state.size(), 7);
  const std::vector<NamedBuffer> buffers{{"state", state}};
  try {
    StateSync sync = comm.start_sync_state(buffers, is_source ? 1 : 0);
    // Nothing moves without a call. What sockets hold arrives all the same, and may be all.
    if (comm.rank() == loss.victim) {
      loss.await(sync, board);
      ::raise(SIGKILL);
    }
    loss.lead_up_to(sync, board, is_source, state);
    sync.wait();
    require(state == wanted, "it has ended well without the state");
    comm.barrier();
    throw std::runtime_error("nobody misses the lost rank");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::peer_lost && error.peer() == loss.victim, error.what());
  }
  require(!is_source || state == wanted, "a source has lost its state");
  const auto next = comm.shrink();
  const StateReport report = next->sync_state(buffers, is_source ? 1 : 0);
  require(report.sources.front() == 0 && state == wanted, "not all have the state");
  comm.leave();
  next->leave();
}

class StateSyncFaults : public ::testing::TestWithParam<std::string> {
 protected:
  void lose(const Loss& loss) {
    const auto board = SyncBoard::make();
    Options options;
    options.size = kSyncing;
    options.transport = GetParam();
    options.timeout = std::chrono::seconds(20);
    options.progress_thread = false;
    ForkedJob job(kSyncing, options, [&](Communicator& comm) { lose_one(comm, loss, *board); });
    expect_success(job.verdicts(loss.victim, 60 * slowness()), {loss.victim});
  }
};

TEST_P(StateSyncFaults, AKilledSourceIsNamedAndTheOthersBeginAnew) {
  lose({.sources = 2});
}

TEST_P(StateSyncFaults, OneOfThreeSourcesIsKilledHalfway) {
  for (const int victim : {0, 1, 2}) lose({.victim = victim, .when = Loss::When::halfway});
}

TEST_P(StateSyncFaults, TheReceiverIsKilled) {
  lose({.victim = kSyncing - 1});
}

/// It trains on, with nothing left to do for the state.
TEST_P(StateSyncFaults, ASourceThatHasSentItsPartIsKilled) {
  lose({.victim = 2, .when = Loss::When::after_its_part});
}

INSTANTIATE_TEST_SUITE_P(Transports, StateSyncFaults, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

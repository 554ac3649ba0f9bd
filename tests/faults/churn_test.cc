// Ranks that die while others join in their place, real processes: the job goes on, at any moment.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

constexpr int kChurning = 6;
constexpr int kKillsARound = 2;  // at once: more than half are left
constexpr int kProcessesMax = 4096;

/// Shared by forked processes.
struct ChurnBoard {
  /// By process: the newest epoch of all kChurning in which it has a sum; 0: none.
  std::atomic<uint32_t> epoch_of[kProcessesMax] = {};
  std::atomic<bool> ends{false};

  /// Whether they are the members of one epoch.
  bool are_together(const std::vector<int>& processes) const {
    const uint32_t epoch = epoch_of[processes.front()];
    return epoch > 0 &&
           std::ranges::all_of(processes, [&](int one) { return epoch_of[one] == epoch; });
  }

  static std::shared_ptr<ChurnBoard> make() {
    void* at = ::mmap(nullptr, sizeof(ChurnBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) ChurnBoard, [](ChurnBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

void expect_sum_here(Communicator& comm, size_t count) {
  std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(data);
  const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  for (const float value : data)
    if (value != sum) throw std::runtime_error("a wrong sum");
}

/// Sums, takes in who waits, and leaves behind who is lost, until the test ends it.
void take_part(Communicator& first, ChurnBoard& board, int process) {
  std::unique_ptr<Communicator> later;
  Communicator* comm = &first;
  for (int round = 0;; ++round) try {  // counted alike on all ranks of an epoch
      expect_sum_here(*comm, round % 2 == 0 ? 1 : 50'000);
      if (comm->size() == kChurning)
        board.epoch_of[process] = static_cast<uint32_t>(comm->epoch().number) + 1;
      std::vector<int> wanted{comm->pending() > 0, board.ends && comm->size() == kChurning};
      comm->broadcast(std::span(wanted), 0);
      if (wanted[1] != 0) break;
      auto grown = wanted[0] != 0 ? comm->grow() : nullptr;
      if (!grown) continue;
      later = std::move(grown);
      comm = later.get();
      round = -1;
    } catch (const Error& error) {
      if (!error.is_survivable()) throw;
      later = comm->shrink();
      comm = later.get();
      round = -1;
    }
  comm->leave();
}

class Churn : public ::testing::TestWithParam<std::string> {};

TEST_P(Churn, KilledRanksAreReplacedWheneverTheyDie) {
  const int rounds = std::min(kills_under_test(12), (kProcessesMax - kChurning) / kKillsARound);
  const auto board = ChurnBoard::make();
  Options options;
  options.size = kChurning;
  options.transport = GetParam();
  options.elastic = true;
  options.timeout = std::chrono::seconds(20);
  ForkedJob job(kChurning, options,
                [&](Communicator& comm) { take_part(comm, *board, comm.rank()); });
  std::vector<int> living(kChurning), victims;
  std::iota(living.begin(), living.end(), 0);
  std::mt19937 random(7);
  const auto moment_s = [&] { return std::uniform_real_distribution<>(0.0, 0.06)(random); };
  std::vector<double> times_s;
  for (int round = 0; round < rounds; ++round) {
    for (int kill = 0; kill < kKillsARound; ++kill) {
      sleep_s(moment_s());
      const auto victim = living.begin() + static_cast<long>(random() % living.size());
      job.signal(*victim, SIGKILL);
      victims.push_back(*victim);
      const int process = kChurning + static_cast<int>(victims.size()) - 1;
      *victim = job.add_newcomer(
          options, [&, process](Communicator& comm) { take_part(comm, *board, process); });
      ASSERT_EQ(*victim, process);
    }
    const double killed_s = now_s(), limit_s = killed_s + 30 * slowness();
    // Not before: with these, more than half of one epoch might be killed.
    while (!board->are_together(living) && now_s() < limit_s) sleep_s(0.001);
    ASSERT_TRUE(board->are_together(living)) << "round " << round;
    times_s.push_back(now_s() - killed_s);
  }
  board->ends = true;
  expect_success(job.verdicts(-1, 30 * slowness()), victims);
  std::ranges::sort(times_s);
  printf("%d of %d killed and replaced: %zu times, median %.0f ms, worst %.0f ms\n", kKillsARound,
         kChurning, times_s.size(), 1e3 * times_s[times_s.size() / 2], 1e3 * times_s.back());
}

INSTANTIATE_TEST_SUITE_P(Transports, Churn, ::testing::ValuesIn(transports_of_jobs()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

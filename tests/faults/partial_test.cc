// Partial all_reduces of real processes: one that is slow, some that are killed.
#include "ropewalk/partial.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
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

constexpr int kPairs = 15;

/// Shared by forked processes.
struct PartialBoard {
  std::array<std::atomic<int>, 2 * kPairs> ended{};      // ranks that have, by phase
  std::array<std::atomic<double>, 2 * kPairs> step_s{};  // the sum of those ranks'
  std::atomic<int> rounds{0};                            // of rank 0, in its epoch

  static std::shared_ptr<PartialBoard> make() {
    void* at = ::mmap(nullptr, sizeof(PartialBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) PartialBoard, [](PartialBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

class PartialFaults : public ::testing::TestWithParam<std::string> {};

void step(PartialAllReduce<float>& reducer, std::vector<float>& data, double compute_s) {
  sleep_s(compute_s);
  std::ranges::fill(data, 1.0f);
  const PartialSum sum = reducer.all_reduce(data, std::chrono::milliseconds(2));
  if (data.back() != static_cast<float>(sum.total())) throw std::runtime_error("a wrong sum");
}

/// Phases without a straggler and with one, in turn.
void take_steps(Communicator& comm, PartialBoard& board) {
  constexpr int kSteps = 20;
  constexpr double kCompute_s = 0.01;
  PartialAllReduce<float> reducer(comm, 10'000);
  std::vector<float> data(10'000);
  const int others = comm.size() - 1;
  const bool is_straggler = comm.rank() == others;
  for (size_t phase = 0; phase < board.ended.size(); ++phase) {
    comm.barrier();
    const double compute_s = is_straggler && phase % 2 == 1 ? 10 * kCompute_s : kCompute_s;
    while (is_straggler && board.ended[phase] < others) step(reducer, data, compute_s);
    if (is_straggler) continue;
    const double begun_s = now_s();
    for (int count = 0; count < kSteps; ++count) step(reducer, data, compute_s);
    board.step_s[phase] += (now_s() - begun_s) / kSteps;
    ++board.ended[phase];
  }
  reducer.finish(data);
}

TEST_P(PartialFaults, AStragglerSlowsNobody) {
  const auto board = PartialBoard::make();
  Options options;
  options.size = 8;
  options.transport = GetParam();
  ForkedJob job(8, options, [&](Communicator& comm) { take_steps(comm, *board); });
  expect_success(job.verdicts(-1, 100 * slowness()));
  std::vector<double> ratios;
  for (size_t pair = 0; pair < kPairs; ++pair)
    ratios.push_back(board->step_s[2 * pair + 1] / board->step_s[2 * pair]);
  std::ranges::sort(ratios);
  printf(
      "steps of 7 ranks beside one that takes 10 times as long: %.3f times as long "
      "(%.3f to %.3f; at first %.1f ms a step)\n",
      ratios[kPairs / 2], ratios.front(), ratios.back(), 1e3 * board->step_s[0] / 7);
  EXPECT_LE(ratios[kPairs / 2], 1.3);
}

/// Until three are left, which make some more steps.
void reduce_until_three_are_left(Communicator& first, PartialBoard& board) {
  std::unique_ptr<Communicator> later;
  Communicator* comm = &first;
  for (;;) try {
      PartialAllReduce<int64_t> reducer(*comm, 1000);
      std::vector<int64_t> brought(1000), got(1000), data(1000);
      for (int call = 0; comm->size() > 3 || call < 50; ++call) {
        std::ranges::fill(data, call + comm->rank());
        for (size_t i = 0; i < data.size(); ++i) brought[i] += data[i];
        try {
          reducer.all_reduce(data, std::chrono::milliseconds(1));
        } catch (const Error&) {
          if (std::ranges::count(data, call + comm->rank()) != std::ssize(data))
            throw std::runtime_error("a changed input");
          throw;
        }
        for (size_t i = 0; i < data.size(); ++i) got[i] += data[i];
        if (comm->rank() == 0) board.rounds = call;
      }
      reducer.finish(data);
      for (size_t i = 0; i < data.size(); ++i) got[i] += data[i];
      comm->all_reduce(brought);
      if (brought != got) throw std::runtime_error("a wrong total");
      return;
    } catch (const Error& error) {
      if (!error.is_survivable()) throw;
      board.rounds = 0;
      later = comm->shrink();
      comm = later.get();
    }
}

TEST_P(PartialFaults, RanksThatAreKilledAreLeftBehind) {
  const auto board = PartialBoard::make();
  Options options;
  options.size = 5;
  options.transport = GetParam();
  options.timeout = std::chrono::seconds(20);
  ForkedJob job(5, options, [&](Communicator& comm) { reduce_until_three_are_left(comm, *board); });
  for (const int victim : {0, 3}) {  // the one that decides, and another
    const double limit_s = now_s() + 20 * slowness();
    while (board->rounds < 20 && now_s() < limit_s) sleep_s(0.001);
    job.signal(victim, SIGKILL);
    board->rounds = 0;
    sleep_s(0.2);
  }
  expect_success(job.verdicts(-1, 30 * slowness()), {0, 3});
}

INSTANTIATE_TEST_SUITE_P(Transports, PartialFaults, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

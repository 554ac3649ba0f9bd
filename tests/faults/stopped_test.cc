// Members that are stopped while they make the next epoch, real processes: the others go on without
// them, and they learn of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

/// Shared by forked processes.
struct StopBoard {
  std::atomic<bool> is_stopped{false}, was_inside{false};
  std::atomic<int> finished{0};

  static std::shared_ptr<StopBoard> make() {
    void* at = ::mmap(nullptr, sizeof(StopBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) StopBoard, [](StopBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

struct Stop {
  int process = 0;
  double after_s = 0;  // from its call
  int left = 0;        // who go on without it
};

/// A rank that goes on until those who are left have done so without the one that is stopped.
class Stopping {
 public:
  Stopping(Communicator& first, StopBoard& board, const Stop& stop, int process)
      : comm_(&first), board_(board), stop_(stop), process_(process) {}

  void run() {
    while (!ends_) try {
        step();
      } catch (const Error& error) {
        if (!error.is_survivable()) throw;
        change([&] { return comm_->shrink(); });
      }
    ++board_.finished;
    comm_->leave();
  }

 private:
  void step() {
    std::vector<float> ones(1000, 1);
    comm_->all_reduce(ones);
    require(ones[999] == static_cast<float>(comm_->size()), "a wrong sum");
    const bool are_left = board_.is_stopped && comm_->size() == stop_.left;
    std::array wanted{comm_->pending() > 0, are_left && comm_->epoch().number > 0};
    comm_->broadcast(std::span(reinterpret_cast<uint8_t*>(wanted.data()), wanted.size()), 0);
    ends_ = wanted[1];
    if (!ends_ && wanted[0]) change([&] { return comm_->grow(); });
  }

  template <class Make>
  void change(Make make) {
    std::atomic<bool> is_ready = false, has_begun = false, is_inside = true;
    std::thread stopper;
    if (process_ == stop_.process && !board_.is_stopped) {
      stopper = std::thread([&] {
        is_ready = true;
        while (!has_begun) {
        }
        for (const double begun_s = now_s(); now_s() < begun_s + stop_.after_s;) {
        }
        board_.was_inside = is_inside.load();
        board_.is_stopped = true;
        ::kill(::getpid(), SIGSTOP);
      });
      while (!is_ready) sleep_s(0.0001);
    }
    has_begun = true;
    std::unique_ptr<Communicator> next;
    try {
      next = make();
    } catch (const Error&) {
      if (stopper.joinable()) stopper.join();
      throw;
    }
    is_inside = false;
    if (stopper.joinable()) stopper.join();
    if (!next) return;
    later_ = std::move(next);
    comm_ = later_.get();
  }

  std::unique_ptr<Communicator> later_;
  Communicator* comm_;
  StopBoard& board_;
  const Stop stop_;
  const int process_;
  bool ends_ = false;
};

class ShrinksStopped : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr int kRanks = 5;

  Options options() const {
    Options options;
    options.size = kRanks;
    options.transport = GetParam();
    options.timeout = std::chrono::seconds(2);
    options.elastic = true;
    return options;
  }

  /// `begin(job, body of another process)` has the job make its next epoch, in which a rank is
  /// stopped. `lost`: another one.
  template <class Begin>
  void stop_in_change(int round, int left, std::vector<int> lost, Begin begin) {
    constexpr std::array kShare{0.0, 0.05, 0.3, 1.0};  // of the time that it may take
    const double may_take_s = GetParam() == "shm" ? 0.0003 : 0.003;
    const Stop stop{round % 2 == 0 ? 0 : 3, may_take_s * kShare[static_cast<size_t>(round) % 4],
                    left};
    const auto board = StopBoard::make();
    ForkedJob job(kRanks, options(), [&](Communicator& comm) {
      comm.agree(0);  // all have joined
      Stopping(comm, *board, stop, comm.rank()).run();
    });
    begin(job, [&](Communicator& comm) { Stopping(comm, *board, stop, kRanks).run(); });
    const double limit_s = now_s() + 30 * slowness();
    while (!board->is_stopped && now_s() < limit_s) sleep_s(0.001);
    const double stopped_s = now_s();
    while (board->finished < left && now_s() < limit_s) sleep_s(0.001);
    EXPECT_EQ(board->finished, left);
    printf("rank %d stopped %s: the others went on after %.0f ms\n", stop.process,
           board->was_inside ? "inside" : "after it", 1e3 * (now_s() - stopped_s));
    job.signal(stop.process, SIGCONT);
    lost.push_back(stop.process);
    const auto verdicts = job.verdicts(-1, 30 * slowness());
    expect_success(verdicts, lost);
    const Verdict& verdict = verdicts[static_cast<size_t>(stop.process)];
    EXPECT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, static_cast<int>(ErrorCode::no_quorum)) << verdict.text;
  }
};

TEST_P(ShrinksStopped, ASurvivorInsideShrinkIsLeftBehind) {
  for (int round = 0; round < kills_under_test(4) && !HasFailure(); ++round)
    stop_in_change(round, kRanks - 2, {1},
                   [](ForkedJob& job, const auto&) { job.signal(1, SIGKILL); });
}

TEST_P(ShrinksStopped, AMemberInsideGrowIsLeftBehind) {
  for (int round = 0; round < kills_under_test(4) && !HasFailure(); ++round)
    stop_in_change(round, kRanks, {},
                   [&](ForkedJob& job, const auto& body) { job.add_newcomer(options(), body); });
}

INSTANTIATE_TEST_SUITE_P(Transports, ShrinksStopped, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

// Committed all_reduces: on all ranks that are left or on none, whenever ranks die.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/faults/forked_job.h"
#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

// ---- Threads as ranks: also under sanitizers ----

class CommittedCall : public ::testing::TestWithParam<std::string> {};

TEST_P(CommittedCall, SumsAsAllReduce) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    for (const size_t count : {1, 0, 7, 100'000, 3, 50'000, 100'000}) {
      std::vector<int64_t> data(count, comm.rank() + 1);
      comm.all_reduce_committed(data);
      EXPECT_EQ(data, std::vector<int64_t>(count, 6));
      comm.all_reduce_committed(data, kMax);
      EXPECT_EQ(data, std::vector<int64_t>(count, 6));
    }
    auto registered = comm.allocate<float>(1000);
    std::ranges::fill(registered, 2.0f);
    comm.all_reduce_committed(registered, kAvg);
    EXPECT_EQ(registered[999], 2.0f);
  });
}

TEST_P(CommittedCall, OfAPartIsRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    const auto part = comm.split(0);
    std::vector<int> data(1);
    EXPECT_THROW(part->all_reduce_committed(data), Error);
    comm.all_reduce_committed(data);
  });
}

void expect_agreed(Communicator& comm, uint64_t bits, uint64_t all) {
  EXPECT_EQ(comm.agree(bits).bits, all);
}

/// What a rank does that has heard of the failure before the others are in a committed call.
void revoke_and(Communicator& comm, int choice) {
  comm.revoke("enough");
  if (choice == 1) {
    expect_agreed(comm, 6, 2);
  } else if (choice == 2) {
    expect_agreed(comm, 7, 3);
    expect_agreed(comm, 6, 2);
  }
}

TEST_P(CommittedCall, FailsWhileAnotherRankShrinksOrAgrees) {
  for (int round = 0; round < 12 / slowness(); ++round)
    run_ranks(4, GetParam(), [round](Communicator& comm) {
      const int choice = round % 3;
      const bool leads = comm.rank() == round % 4;
      for (int call = 0; leads && call < round; ++call) {
        std::vector<int64_t> data(1000, 1);
        comm.all_reduce_committed(data);
      }
      int64_t committed = round;
      std::vector<int64_t> data(1000);
      if (leads) {
        revoke_and(comm, choice);
      } else {
        try {
          for (committed = 0;; ++committed) {
            std::ranges::fill(data, 1);
            comm.all_reduce_committed(data);
            EXPECT_EQ(data[999], 4);
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::revoked) << error.what();
          EXPECT_EQ(data, std::vector<int64_t>(1000, 1));
        }
        if (choice == 2) expect_agreed(comm, 3, 3);
        if (choice >= 1) expect_agreed(comm, 2, 2);
      }
      const auto next = comm.shrink();
      EXPECT_EQ(next->size(), 4);
      EXPECT_EQ(committed, round);
    });
}

TEST_P(CommittedCall, CallsThatDifferAreAMismatchOnAll) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<int> data(comm.rank() == 1 ? 10 : 11, 1);
    try {
      comm.all_reduce_committed(data);
      ADD_FAILURE() << "nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
    EXPECT_EQ(std::ranges::count(data, 1), std::ssize(data));
  });
}

// ---- Real processes that are killed ----

constexpr int kCommitting = 5;

/// Shared by forked processes.
struct CommitBoard {
  std::atomic<int> size{kCommitting};  // of the newest epoch in which all have a sum
  std::atomic<int> newcomers{0};       // that have become members
  std::atomic<bool> ends{false};
  std::atomic<int> aborted{0};  // calls, by rank
  std::atomic<int> settled{0};  // that have ended well though the epoch had failed
  std::atomic<int64_t> committed{0};

  static std::shared_ptr<CommitBoard> make() {
    void* at = ::mmap(nullptr, sizeof(CommitBoard), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) CommitBoard, [](CommitBoard* board) { ::munmap(board, sizeof *board); }};
  }
};

/// One rank of the job. `committed_` counts calls that ended well here: were a call to end well on
/// some ranks alone, ranks would differ in it.
class CommittingRank {
 public:
  CommittingRank(Communicator& first, CommitBoard& board) : comm_(&first), board_(board) {
    is_new_ = first.epoch().number > 0;
  }

  void run() {
    bool begins = true;  // an epoch
    for (;;) try {
        if (begins) compare();
        begins = false;
        commit();
        std::vector<int> wanted{comm_->pending() > 0, board_.ends && comm_->size() == kCommitting};
        comm_->broadcast(wanted, 0);  // may end on some ranks only
        if (wanted[1] != 0) break;
        auto grown = wanted[0] != 0 ? comm_->grow() : nullptr;
        begins = grown != nullptr;
        if (begins) go_on(std::move(grown));
      } catch (const Error& error) {
        if (!error.is_survivable()) throw;
        go_on(comm_->shrink());
        begins = true;
      }
    comm_->leave();
  }

 private:
  void go_on(std::unique_ptr<Communicator> next) {
    later_ = std::move(next);
    comm_ = later_.get();
  }

  /// All that have been there before have committed as many.
  void compare() {
    constexpr auto kMost = std::numeric_limits<int64_t>::max();
    std::vector<int64_t> counts{is_new_ ? -kMost : -committed_, is_new_ ? -1 : committed_};
    comm_->all_reduce(counts, kMax);
    require(-counts[0] == counts[1], "a call was committed on some ranks only");
    committed_ = counts[1];
    if (std::exchange(is_new_, false)) ++board_.newcomers;
    if (comm_->rank() == 0) board_.size = comm_->size();
  }

  void commit() {
    constexpr std::array<size_t, 6> kCounts = {1, 20'000, 1, 1, 1, 300'000};
    std::vector<int64_t> data(kCounts[static_cast<size_t>(committed_) % kCounts.size()]);
    const int64_t first = committed_ * 1000 + comm_->rank();
    std::iota(data.begin(), data.end(), first);
    bool ends_well = true;
    try {
      comm_->all_reduce_committed(data);
    } catch (const Error&) {
      ++board_.aborted;
      ends_well = false;
    }
    const int64_t ranks = comm_->size();
    for (size_t i = 0; i < data.size(); ++i) {
      const int64_t own = first + static_cast<int64_t>(i);
      const int64_t sum = (own - comm_->rank()) * ranks + ranks * (ranks - 1) / 2;
      require(data[i] == (ends_well ? sum : own), ends_well ? "a wrong sum" : "a changed input");
    }
    if (const auto failure = comm_->failure()) {
      if (ends_well) ++board_.settled, ++committed_;
      throw Error(*failure);
    }
    ++committed_;
    if (comm_->rank() == 0) board_.committed = committed_;
  }

  std::unique_ptr<Communicator> later_;
  Communicator* comm_;
  CommitBoard& board_;
  int64_t committed_ = 0;
  bool is_new_;  // has not compared yet
};

class Committed : public ::testing::TestWithParam<std::string> {};

TEST_P(Committed, OnAllThatAreLeftOrOnNone) {
  const int rounds = kills_under_test(20);
  const auto board = CommitBoard::make();
  Options options;
  options.size = kCommitting;
  options.transport = GetParam();
  options.elastic = true;
  options.timeout = std::chrono::seconds(20);
  const auto body = [&](Communicator& comm) { CommittingRank(comm, *board).run(); };
  ForkedJob job(kCommitting, options, body);
  std::vector<int> living(kCommitting), victims;
  std::iota(living.begin(), living.end(), 0);
  std::mt19937 random(11);
  for (int round = 0; round < rounds; ++round) {
    // No more than two end in one epoch, and all that live are members when the next round begins:
    // the others are more than half, however soon they go on.
    std::ranges::shuffle(living, random);
    for (int kill = 0; kill <= round % 2; ++kill) {
      sleep_s(std::uniform_real_distribution<>(0.0, 0.1)(random));
      const auto victim = living.begin() + kill;
      job.signal(*victim, SIGKILL);
      victims.push_back(*victim);
      *victim = job.add_newcomer(options, body);
    }
    const double limit_s = now_s() + 30 * slowness();
    const auto is_whole = [&] {
      return board->size == kCommitting && board->newcomers == std::ssize(victims);
    };
    while (!is_whole() && now_s() < limit_s) sleep_s(0.001);
    if (!is_whole()) break;  // verdicts tell why
  }
  board->ends = true;
  expect_success(job.verdicts(-1, 30 * slowness()), victims);
  EXPECT_EQ(static_cast<int>(victims.size()), rounds + rounds / 2);
  printf(
      "%zu killed, %lld committed; calls that met a death: aborted on %d ranks, ended well on %d\n",
      victims.size(), static_cast<long long>(board->committed), board->aborted.load(),
      board->settled.load());
}

INSTANTIATE_TEST_SUITE_P(Transports, CommittedCall, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Transports, Committed, ::testing::ValuesIn(transports_of_jobs()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

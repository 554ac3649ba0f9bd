// Ranks that die in the middle of collectives, real processes: those who are left form the next
// epoch, and go on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
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

constexpr int kMembers = 8;

/// What the ranks' processes tell the test while they run. Shared by forked processes.
struct Board {
  struct Rank {
    std::atomic<double> recovered_s{0};  // the first sum of the last epoch
    std::atomic<int> epoch{0}, size{0};
    std::atomic<int> departures{0};
    std::atomic<int> in_place{0};  // epochs that kept their connections
  };
  std::array<Rank, kMembers> ranks;
  std::atomic<int> epoch_wanted{1};  // a rank that has come there may end
  std::atomic<int> shrinking{0};     // ranks that have begun to

  static std::shared_ptr<Board> make() {
    void* at =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return {new (at) Board, [](Board* board) { ::munmap(board, sizeof *board); }};
  }
};

void expect_sum(Communicator& comm, size_t count) {
  std::vector<float> data(count, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(data);
  const int size = comm.size();
  const auto sum = static_cast<float>(size * (size + 1) / 2);
  for (const float value : data)
    if (value != sum) throw std::runtime_error("a wrong sum");
}

/// Sums until an epoch has lost as many as `size_wanted` says, whatever happens to others.
void go_on(Communicator& first, Board& board, int size_wanted) {
  const int me = first.rank();
  Board::Rank& own = board.ranks[static_cast<size_t>(me)];
  std::unique_ptr<Communicator> later;
  Communicator* comm = &first;
  for (int round = 0;; ++round) try {
      constexpr std::array<size_t, 4> kCounts{1, 1000, 65536, 300000};
      expect_sum(*comm, kCounts[static_cast<size_t>(round) % kCounts.size()]);
      if (comm->epoch().number > own.epoch) {
        own.recovered_s = now_s();
        own.departures = static_cast<int>(comm->epoch().departures.size());
        own.size = comm->size();
        own.in_place += comm->epoch().keeps_connections;
        own.epoch = comm->epoch().number;
      }
      if (comm->size() == size_wanted && round > 20) break;
    } catch (const Error& error) {
      if (!error.is_survivable()) throw;
      ++board.shrinking;
      later = comm->shrink();
      comm = later.get();
      round = 0;
    }
  comm->leave();
}

class Shrinks : public ::testing::TestWithParam<std::string> {
 protected:
  Options options() const { return options_for(kMembers); }
  static Options options_for(int size) {
    Options options;
    options.size = size;
    options.transport = GetParam();
    options.timeout = std::chrono::seconds(20);
    return options;
  }
};

void expect_survivors(ForkedJob& job, const Board& board, const std::vector<int>& victims) {
  const auto verdicts = job.verdicts(-1, 40 * slowness());
  expect_success(verdicts, victims);
  for (int rank = 0; rank < kMembers; ++rank) {
    if (std::ranges::count(victims, rank) != 0) continue;
    EXPECT_EQ(board.ranks[static_cast<size_t>(rank)].size,
              kMembers - static_cast<int>(victims.size()));
  }
}

void print_times(const char* what, std::vector<double> times_s) {
  if (times_s.empty()) return;
  std::ranges::sort(times_s);
  printf("%s: %zu recoveries, median %.0f ms, worst %.0f ms\n", what, times_s.size(),
         1e3 * times_s[times_s.size() / 2], 1e3 * times_s.back());
}

double recovered_s(const Board& board) {
  double latest = 0;
  for (const Board::Rank& rank : board.ranks) latest = std::max(latest, rank.recovered_s.load());
  return latest;
}

TEST_P(Shrinks, EveryKillLeavesAJobThatGoesOn) {
  std::vector<double> times_s;
  for (int kill = 0; kill < kills_under_test(16); ++kill) {
    const auto board = Board::make();
    ForkedJob job(kMembers, options(),
                  [&](Communicator& comm) { go_on(comm, *board, kMembers - 1); });
    std::mt19937 random(static_cast<unsigned>(kill));
    const int victim = kill % kMembers;
    sleep_s(std::uniform_real_distribution<>(0.0, 0.05)(random));
    const double killed_s = now_s();
    job.signal(victim, SIGKILL);
    expect_survivors(job, *board, {victim});
    if (HasFailure()) return;
    for (int rank = 0; rank < kMembers && GetParam() == "shm"; ++rank)
      EXPECT_EQ(board->ranks[static_cast<size_t>(rank)].in_place, rank != victim ? 1 : 0) << victim;
    times_s.push_back(recovered_s(*board) - killed_s);
  }
  print_times("one of 8 killed", times_s);
}

// Its sockets are open as long.
/// On the host of a rank that has died.
class ShrinksThere : public Shrinks {};

TEST_P(ShrinksThere, TheOthersGoOnWhileTheMemoryOfWhoDiedIsTakenDown) {
  const auto board = Board::make();
  ForkedJob job(3, options_for(3), [&](Communicator& comm) {
    if (comm.rank() == 1) map_much();
    try {
      comm.barrier();
      if (comm.rank() == 1) ::raise(SIGKILL);
      for (;;) expect_sum(comm, 1000);
    } catch (const Error&) {
    }
    const auto next = comm.shrink();
    expect_sum(*next, 1000);
    board->ranks[static_cast<size_t>(comm.rank())].recovered_s = now_s();
  });
  job.mark();
  const double marked_s = now_s();
  const double closed_s = marked_s + job.closed_after_s(1);
  expect_success(job.verdicts(1, 30 * slowness()), {1});
  printf("1 GB of rank 1 of 3: summed after %.0f ms, its sockets closed after %.0f ms\n",
         1e3 * (recovered_s(*board) - marked_s), 1e3 * (closed_s - marked_s));
}

TEST_P(Shrinks, TwoAtOnceAndOneMoreDuringRecovery) {
  std::vector<double> times_s;
  for (int round = 0; round < kills_under_test(8); ++round) {
    const auto board = Board::make();
    ForkedJob job(kMembers, options(),
                  [&](Communicator& comm) { go_on(comm, *board, kMembers - 3); });
    std::mt19937 random(static_cast<unsigned>(round));
    std::vector<int> victims(kMembers);
    std::iota(victims.begin(), victims.end(), 0);
    std::ranges::shuffle(victims, random);
    if (round % 2 == 0) {
      std::ranges::swap(victims[0], *std::ranges::find(victims, 0));
    } else {  // the last is the lowest that is left: it leads the agreement
      std::ranges::swap(victims[2], *std::min_element(victims.begin() + 2, victims.end()));
    }
    victims.resize(3);
    sleep_s(0.02);
    job.signal(victims[0], SIGKILL);
    job.signal(victims[1], SIGKILL);
    while (board->shrinking == 0) sleep_s(0.0005);
    sleep_s(std::uniform_real_distribution<>(0.0, 0.03)(random));
    const double killed_s = now_s();
    job.signal(victims[2], SIGKILL);
    expect_survivors(job, *board, victims);
    if (HasFailure()) return;
    times_s.push_back(recovered_s(*board) - killed_s);
  }
  print_times("three of 8 killed", times_s);
}

TEST_P(Shrinks, AStoppedRankIsLeftBehindAndLearnsOfIt) {
  const auto board = Board::make();
  Options short_timeout = options();
  short_timeout.timeout = std::chrono::seconds(2);
  ForkedJob job(kMembers, short_timeout,
                [&](Communicator& comm) { go_on(comm, *board, kMembers - 1); });
  const double stopped_s = now_s();
  job.signal(0, SIGSTOP);
  while (recovered_s(*board) == 0 && now_s() < stopped_s + 30 * slowness()) sleep_s(0.01);
  const double took_s = recovered_s(*board) - stopped_s;
  printf("rank 0 of 8 stopped, timeout 2 s: %.0f ms\n", 1e3 * took_s);
  sleep_s(0.2);
  job.signal(0, SIGCONT);
  const auto verdicts = job.verdicts(-1, 30 * slowness());
  for (const Board::Rank& rank : board->ranks)
    EXPECT_EQ(rank.in_place, 0) << "it still has what the others would go on with";
  expect_success(verdicts, {0});
  EXPECT_EQ(verdicts[0].code, static_cast<int>(ErrorCode::no_quorum)) << verdicts[0].text;
}

TEST_P(Shrinks, WhoIsLeftAgreesWhoeverDies) {
  for (int round = 0; round < kills_under_test(4); ++round) {
    ForkedJob job(kMembers, options(), [&](Communicator& comm) {
      const uint64_t own = ~(uint64_t{1} << comm.rank());
      for (int call = 0;; ++call) {
        const Agreed agreed = comm.agree(own);
        uint64_t expected = ~uint64_t{0};
        for (const int rank : agreed.ranks) expected &= ~(uint64_t{1} << rank);
        if (agreed.bits != expected) throw std::runtime_error("a wrong AND");
        if (agreed.ranks.size() < kMembers) break;
      }
      comm.shrink()->barrier();
    });
    sleep_s(0.01);
    const int victim = round % 2 == 0 ? 0 : 5;
    job.signal(victim, SIGKILL);
    expect_success(job.verdicts(victim, 30 * slowness()), {victim});
  }
}

TEST_P(Shrinks, ARevokedEpochEndsEverywhereAndAllGoOn) {
  ForkedJob job(kMembers, options(), [&](Communicator& comm) {
    comm.agree(0);  // a rank that still joins has nothing to shrink
    try {
      if (comm.rank() == 3) comm.revoke("a sample was bad");
      for (;;) expect_sum(comm, 1000);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::revoked || error.peer() != 3) throw;
    }
    const auto next = comm.shrink();
    if (next->size() != kMembers || !next->epoch().departures.empty())
      throw std::runtime_error("somebody is missing");
    expect_sum(*next, 1000);
  });
  expect_success(job.verdicts(-1, 30 * slowness()));
}

TEST_P(Shrinks, HalfOfTheRanksIsNoQuorum) {
  ForkedJob job(kMembers, options(), [&](Communicator& comm) {
    try {
      for (;;) expect_sum(comm, 1000);
    } catch (const Error&) {
    }
    comm.shrink();
  });
  for (int rank = 0; rank < kMembers / 2; ++rank) job.signal(rank, SIGKILL);
  const auto verdicts = job.verdicts(-1, 30 * slowness());
  for (int rank = kMembers / 2; rank < kMembers; ++rank)
    EXPECT_EQ(verdicts[static_cast<size_t>(rank)].code, static_cast<int>(ErrorCode::no_quorum))
        << verdicts[static_cast<size_t>(rank)].text;
}

TEST_P(Shrinks, HalfGoesOnWithTheLowestWhereThatBreaksTies) {
  Options options = options_for(4);
  options.tie_breaker = true;
  for (const bool lowest_is_left : {true, false}) {
    ForkedJob job(4, options, [&](Communicator& comm) {
      try {
        for (;;) expect_sum(comm, 1000);
      } catch (const Error&) {
      }
      const auto next = comm.shrink();
      if (next->size() != 2) throw std::runtime_error("not of two");
      expect_sum(*next, 1000);
    });
    const int first_killed = lowest_is_left ? 2 : 0;
    for (int rank = first_killed; rank < first_killed + 2; ++rank) job.signal(rank, SIGKILL);
    const auto verdicts = job.verdicts(-1, 30 * slowness());
    for (const size_t rank :
         lowest_is_left ? std::array<size_t, 2>{0, 1} : std::array<size_t, 2>{2, 3}) {
      EXPECT_EQ(verdicts[rank].code,
                static_cast<int>(lowest_is_left ? ErrorCode::ok : ErrorCode::no_quorum))
          << verdicts[rank].text;
      if (!lowest_is_left) {
        EXPECT_NE(std::string(verdicts[rank].text).find("half with rank 0"), std::string::npos);
      }
    }
  }
}

TEST_P(Shrinks, FewerThanTheQuorumsLeastDoNotGoOn) {
  Options options = options_for(4);
  options.quorum_min = 4;
  ForkedJob job(4, options, [&](Communicator& comm) {
    try {
      for (;;) expect_sum(comm, 1000);
    } catch (const Error&) {
    }
    comm.shrink();
  });
  job.signal(1, SIGKILL);
  const auto verdicts = job.verdicts(-1, 30 * slowness());
  for (const size_t rank : {0, 2, 3}) {
    EXPECT_EQ(verdicts[rank].code, static_cast<int>(ErrorCode::no_quorum)) << verdicts[rank].text;
    EXPECT_NE(std::string(verdicts[rank].text).find("4 at least"), std::string::npos);
  }
}

TEST_P(Shrinks, AnEpochHasOneSuccessor) {
  ForkedJob job(3, options_for(3), [&](Communicator& comm) {
    comm.agree(0);  // a rank that still joins has nothing to shrink
    const auto next = comm.shrink();
    for (const auto& again : {std::function<void()>([&] { comm.shrink(); }),
                              std::function<void()>([&] { comm.agree(0); })})
      try {
        again();
        throw std::runtime_error("the epoch that has ended goes on twice");
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
      }
    expect_sum(*next, 1000);
    next->leave();
  });
  expect_success(job.verdicts(-1, 30 * slowness()));
}

/// Else two minorities, each told that others may have gone on, could meet.
TEST_P(Shrinks, WhoHadNoQuorumTriesNoMore) {
  const auto board = Board::make();
  ForkedJob job(3, options_for(3), [&](Communicator& comm) {
    comm.agree(0);  // all have joined
    if (comm.rank() == 2) {
      EXPECT_THROW(comm.shrink(std::chrono::milliseconds(1)), Error);
      board->shrinking = 1;
      const double begun_s = now_s();
      constexpr double kLimit_s = 8;
      EXPECT_THROW(comm.shrink(std::chrono::milliseconds(int(1000 * kLimit_s))), Error);
      const bool has_tried = now_s() - begun_s > kLimit_s / 2;
      board->shrinking = 2;
      if (has_tried) throw std::runtime_error("it has tried again");
      comm.agree(0);
    }
    while (board->shrinking < 1) sleep_s(0.001);
    const auto next = comm.shrink();
    expect_sum(*next, 1000);
    while (board->shrinking < 2) sleep_s(0.001);
    next->leave();
  });
  const auto verdicts = job.verdicts(-1, 40 * slowness());
  expect_success(verdicts, {2});
  EXPECT_EQ(verdicts[2].code, static_cast<int>(ErrorCode::no_quorum)) << verdicts[2].text;
}

INSTANTIATE_TEST_SUITE_P(Transports, ShrinksThere, ::testing::ValuesIn(transports_under_test()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Transports, Shrinks, ::testing::ValuesIn(transports_of_jobs()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ropewalk::testing

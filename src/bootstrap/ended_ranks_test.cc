#include "bootstrap/ended_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using namespace std::chrono_literals;

TEST(EndedRanks, TellWhoListensOfTheFirstOnce) {
  EndedRanks ranks;
  std::vector<int> early, late;
  const EndedRanks::Listening before(ranks,
                                     [&](const EndedRank& ended) { early.push_back(ended.rank); });
  {
    const EndedRanks::Listening gone(ranks, [](const EndedRank&) { FAIL() << "it has ended"; });
  }
  ranks.note({3, "exit code 1"});
  ranks.note({1, "exit code 2"});
  const EndedRanks::Listening after(ranks,
                                    [&](const EndedRank& ended) { late.push_back(ended.rank); });
  EXPECT_EQ(early, std::vector{3});
  EXPECT_EQ(late, std::vector{3});
}

TEST(EndedRanks, RunNoListenerThatHasEnded) {
  for (int round = 0; round < 100; ++round) {
    EndedRanks ranks;
    std::thread launcher([&] { ranks.note({1, "exit code 1"}); });
    std::atomic<bool> is_there{true};
    {
      const EndedRanks::Listening listening(ranks, [&](const EndedRank&) {
        std::this_thread::yield();
        EXPECT_TRUE(is_there);
      });
    }
    is_there = false;
    launcher.join();
  }
}

TEST(EndedRanks, EndAJoinThatWaitsForThem) {
  TestJob job(3);
  job.config.timeout = 60s;
  EndedRanks ranks;
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = run_world_ranks(3, [&](int rank) {
    if (rank != 2) {
      World::join(job.identity(rank), job.config, {}, nullptr, &ranks);
      return;
    }
    std::this_thread::sleep_for(50ms);
    ranks.note({2, "exit code 3"});
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  for (const int rank : {0, 1}) {
    const auto& error = errors[static_cast<size_t>(rank)];
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::peer_lost);
    EXPECT_EQ(error->peer(), 2);
    EXPECT_NE(std::string(error->what())
                  .find("rank 2 has ended before all ranks had joined, the "
                        "launcher says (exit code 3)"),
              std::string::npos)
        << error->what();
  }
}

TEST(EndedRanks, OfNoRankOfTheJobDoNotEndItsJoin) {
  const TestJob job(2);
  EndedRanks ranks;
  ranks.note({2, "exit code 3"});
  expect_no_errors(run_world_ranks(2, [&](int rank) {
    World::join(job.identity(rank), job.config, {}, nullptr, &ranks)->leave();
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap

// What ROPEWALK_LOG=info tells of joining: phases, by the names under which users look for them.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <string>
#include <vector>

#include "base/log.h"
#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

using Phases = std::vector<std::string>;

/// By rank, in the order told: "joined 3 ranks in 2.10 ms (registered after 1.20 ms, ...)".
std::map<int, Phases> phases_in(const std::string& log, int size) {
  const std::regex line(
      fmt::format(R"(\[rank (\d+)\] info: joined {} ranks in [\d.]+ ms \((.*)\)\n)", size));
  const std::regex phase(R"(([a-z ]+) after [\d.]+ ms(?:, |$))");
  std::map<int, Phases> all;
  for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) {
    const std::string told = (*at)[2];
    for (std::sregex_iterator one(told.begin(), told.end(), phase); one != end; ++one)
      all[std::stoi((*at)[1])].push_back((*one)[1]);
  }
  return all;
}

std::map<int, Phases> phases_of_join(int size) {
  set_log_level(LogLevel::info);
  testing::internal::CaptureStderr();
  const TestJob job(size);
  expect_no_errors(run_world_ranks(size, [&](int rank) { job.join(rank)->leave(); }));
  set_log_level(LogLevel::warn);
  return phases_in(testing::internal::GetCapturedStderr(), size);
}

TEST(JoinPhases, AreToldInOrder) {
  const Phases of_others = {"found the coordinator", "all registered", "linked"};
  EXPECT_EQ(
      phases_of_join(3),
      (std::map<int, Phases>{{0, {"registered", "all linked"}}, {1, of_others}, {2, of_others}}));
}

TEST(JoinPhases, TellWhoHasJoinedThroughARankOfItsHost) {
  constexpr int kRanks = 24;
  auto all = phases_of_join(kRanks);
  EXPECT_EQ(all.size(), size_t{kRanks});
  EXPECT_EQ(all[0], (Phases{"registered", "all linked"}));
  int through_others = 0;
  for (int rank = 1; rank < kRanks; ++rank) {
    Phases& told = all[rank];
    ASSERT_EQ(told.size(), 3U) << rank;
    if (told[0] == "found the local registrar")
      ++through_others;
    else
      EXPECT_EQ(told[0], "found the coordinator");
    EXPECT_EQ((Phases{told[1], told[2]}), (Phases{"all registered", "linked"}));
  }
  EXPECT_GT(through_others, 0);
}

}  // namespace
}  // namespace ropewalk::bootstrap

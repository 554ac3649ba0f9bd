#include <set>
#include <tuple>

#include "schedule/test_support.h"

namespace ropewalk {
namespace {

TEST(Tree, SevenRanksBroadcast) {
  const ScheduleKey key{Collective::broadcast, Algorithm::tree, 7, 0, {}};
  // First tree: 0 - 4 - (2 - (1, 3), 6 - 5); the second mirrors 1..6.
  EXPECT_EQ(text_of(build_schedule(key, 0)), "=>4:0 =>3:1'");
  EXPECT_EQ(text_of(build_schedule(key, 4)), "=<0:0 =>2:0 =>6:0 =<5:1'");
  EXPECT_EQ(text_of(build_schedule(key, 5)), "=<6:0 =<3:1' =>6:1' =>4:1'");
}

TEST(Tree, ReduceIsBroadcastBackwards) {
  ScheduleKey key{Collective::broadcast, Algorithm::tree, 12, 5, {}};
  ScheduleKey back{Collective::reduce, Algorithm::tree, 12, 5, {}};
  std::multiset<std::tuple<int, int, int>> down, up;  // from, to, block
  for (int rank = 0; rank < 12; ++rank) {
    for (const Step& step : build_schedule(key, rank).steps)
      if (is_send(step.op)) down.emplace(rank, step.peer, step.block);
    for (const Step& step : build_schedule(back, rank).steps)
      if (is_send(step.op)) up.emplace(step.peer, rank, step.block);
  }
  EXPECT_EQ(down, up);
}

TEST(Tree, WhoHasChildrenInOneTreeHasNoneInTheOther) {
  for (int ranks = 2; ranks <= 70; ++ranks)
    for (int rank = 1; rank < ranks; ++rank) {
      bool sends[2] = {false, false};
      for (const Step& step :
           build_schedule({Collective::broadcast, Algorithm::tree, ranks, 0, {}}, rank).steps)
        if (is_send(step.op)) sends[step.block] = true;
      EXPECT_FALSE(sends[0] && sends[1]) << rank << " of " << ranks;
    }
}

TEST(Tree, EachTreeHasItsLane) {
  for (const Schedule& schedule : build_all({Collective::all_reduce, Algorithm::tree, 23, 0, {}}))
    for (const Step& step : schedule.steps) EXPECT_EQ(step.block, step.lane);
}

TEST(Tree, DepthIsLogarithmic) {
  const VerifyReport report = verify({Collective::all_reduce, Algorithm::tree, 1025, 0, {}}, 1);
  EXPECT_TRUE(report.ok()) << text_of(report);
  EXPECT_EQ(report.rounds, 22);
  EXPECT_LE(report.steps_max, 12u);
  EXPECT_DOUBLE_EQ(report.sent_max, 2.0);
}

TEST(Tree, IsCorrectForEveryRoot) {
  for (int ranks : {2, 3, 4, 5, 8, 13, 16})
    for (int root = 0; root < ranks; ++root)
      for (Collective collective : {Collective::broadcast, Collective::reduce})
        expect_correct({collective, Algorithm::tree, ranks, root, {}});
}

}  // namespace
}  // namespace ropewalk

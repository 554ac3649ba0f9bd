#include <algorithm>
#include <set>

#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kDirect = Algorithm::direct;

TEST(Direct, AllReduceOfThree) {
  EXPECT_EQ(text_of(build_schedule({Collective::all_reduce, kDirect, 3, 0, {}}, 1)),
            "+>2:2 +>0:0 +<0:1 +<2:1 =>2:1 =>0:1 =<0:0 =<2:2");
}

// The engine fuses the two runs into one pass: read all sources, write all destinations.
TEST(Direct, ReceivesAreOneRunFollowedByOneRunOfSends) {
  for (int ranks : {2, 5, 16})
    for (const Schedule& schedule : build_all({Collective::all_reduce, kDirect, ranks, 0, {}})) {
      std::vector<StepOp> on_own_block;
      for (const Step& step : schedule.steps)
        if (step.block == schedule.rank) on_own_block.push_back(step.op);
      const auto others = static_cast<size_t>(ranks - 1);
      ASSERT_EQ(on_own_block.size(), 2 * others);
      const auto at =
          std::find_if(schedule.steps.begin(), schedule.steps.end(),
                       [](const Step& step) { return step.op == StepOp::recv_reduce; }) -
          schedule.steps.begin();
      for (size_t i = 0; i < 2 * others; ++i) {
        const Step& step = schedule.steps[static_cast<size_t>(at) + i];
        EXPECT_EQ(step.op, i < others ? StepOp::recv_reduce : StepOp::send_copy);
        EXPECT_EQ(step.block, schedule.rank);
      }
    }
}

TEST(Direct, SumOrderIsFixedAndStartsAtTheRankBelow) {
  EXPECT_EQ(order_of_sum(build_schedule({Collective::all_reduce, kDirect, 4, 0, {}}, 2), 2),
            (std::vector<int>{2, 1, 0, 3}));
  EXPECT_EQ(order_of_sum(build_schedule({Collective::reduce, kDirect, 4, 1, {}}, 1), 0),
            (std::vector<int>{1, 2, 3, 0}));
}

TEST(Direct, NoTwoRanksSendToTheSameRankInTheSameStep) {
  const std::vector<Schedule> schedules = build_all({Collective::all_to_all, kDirect, 9, 0, {}});
  for (size_t i = 0; i < schedules[0].steps.size(); i += 2) {
    std::set<int> receivers;
    for (const Schedule& schedule : schedules) receivers.insert(schedule.steps[i].peer);
    EXPECT_EQ(receivers.size(), 9u);
  }
}

TEST(Direct, GatherAndScatterMoveEachPartOnce) {
  EXPECT_EQ(text_of(build_schedule({Collective::gather, kDirect, 3, 1, {}}, 1)), "=<2:2 =<0:0");
  EXPECT_EQ(text_of(build_schedule({Collective::gather, kDirect, 3, 1, {}}, 0)), "=>1:0");
  EXPECT_EQ(text_of(build_schedule({Collective::scatter, kDirect, 3, 1, {}}, 1)), "=>2:2 =>0:0");
  EXPECT_EQ(text_of(build_schedule({Collective::scatter, kDirect, 3, 1, {}}, 0)), "=<1:0");
}

TEST(Direct, IsCorrectBeyondTheUsualSizes) {
  for (Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                Collective::all_gather, Collective::broadcast, Collective::reduce,
                                Collective::gather, Collective::scatter, Collective::all_to_all})
    expect_correct({collective, kDirect, 131, 130, {}});
}

}  // namespace
}  // namespace ropewalk

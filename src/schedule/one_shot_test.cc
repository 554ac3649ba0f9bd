#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kOneShot = Algorithm::one_shot;

TEST(OneShot, AllReduceOfFour) {
  const ScheduleKey key{Collective::all_reduce, kOneShot, 4, 0, {}};
  EXPECT_EQ(text_of(build_schedule(key, 0)), "=>1:0 =>2:0 =>3:0 +<1:0 +<2:0 +<3:0");
  EXPECT_EQ(text_of(build_schedule(key, 2)), "+>3:0 +>0:0 +>1:0 =<0:1 +<1:1 0+=1 +<3:0");
}

// Floating sums are commutative but not associative: ((x0 + x1) + x2) + x3 everywhere.
TEST(OneShot, EveryRankAddsInRankOrder) {
  for (int ranks : {2, 3, 5, 8})
    for (const Schedule& schedule : build_all({Collective::all_reduce, kOneShot, ranks, 0, {}})) {
      std::vector<int> below, sum{schedule.rank};
      for (const Step& step : schedule.steps) {
        if (step.op == StepOp::reduce) {
          below.insert(below.end(), sum.begin(), sum.end());
          sum = below;
        }
        if (is_recv(step.op)) (step.block == 1 ? below : sum).push_back(step.peer);
      }
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(sum[static_cast<size_t>(rank)], rank);
    }
}

TEST(OneShot, IsCorrect) {
  for (int ranks : {1, 2, 3, 4, 7, 16, 33})
    expect_correct({Collective::all_reduce, kOneShot, ranks, 0, {}});
}

}  // namespace
}  // namespace ropewalk

#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kHalvingDoubling = Algorithm::halving_doubling;

TEST(HalvingDoubling, FiveRanksReduceScatter) {
  // Skips 3, 2, 1: rank 0 sends up what lies 3 and 4 above, then 2 above, then 1 above.
  EXPECT_EQ(text_of(build_schedule({Collective::reduce_scatter, kHalvingDoubling, 5, 0, {}}, 0)),
            "+>3:3 +>3:4 +<2:0 +<2:1 +>2:2 +<3:0 +>1:1 +<4:0");
}

// One by one, each waited for the answer to the one before: 7 messages in 7 turns among 8 ranks.
TEST(HalvingDoubling, BlocksOfARoundTravelTogetherUpToFour) {
  EXPECT_EQ(text_of(build_schedule({Collective::all_gather, kHalvingDoubling, 12, 0, {}}, 0)),
            "=>11:0 =<1:1 =>10:0 =<2:2 =>9:0 =>9:1 =>9:2 =<3:3 =<3:4 =<3:5 "
            "=>6:0 =>6:1 =>6:2 =>6:3 =<6:6 =<6:7 =<6:8 =<6:9 =>6:4 =>6:5 =<6:10 =<6:11");
}

TEST(HalvingDoubling, AllGatherIsReduceScatterBackwards) {
  const Schedule down =
      build_schedule({Collective::reduce_scatter, kHalvingDoubling, 11, 0, {}}, 4);
  const Schedule up = build_schedule({Collective::all_gather, kHalvingDoubling, 11, 0, {}}, 4);
  ASSERT_EQ(down.steps.size(), up.steps.size());
  size_t found = 0;
  for (const Step& step : down.steps) {
    const StepOp dual = is_send(step.op) ? StepOp::recv_copy : StepOp::send_copy;
    for (const Step& other : up.steps) found += other == Step{dual, 0, step.peer, step.block, -1};
  }
  EXPECT_EQ(found, up.steps.size());
}

TEST(HalvingDoubling, IsOptimalInBytesAndRounds) {
  for (int ranks : {2, 4, 16, 64, 100}) {
    const VerifyReport report = verify({Collective::all_reduce, kHalvingDoubling, ranks, 0, {}}, 1);
    EXPECT_TRUE(report.ok()) << text_of(report);
    EXPECT_DOUBLE_EQ(report.sent_max, 2.0 * (ranks - 1) / ranks);
  }
  EXPECT_EQ(verify({Collective::all_reduce, kHalvingDoubling, 64, 0, {}}, 1).rounds, 12);
  EXPECT_LE(verify({Collective::all_reduce, kHalvingDoubling, 100, 0, {}}, 1).rounds, 14);
}

TEST(HalvingDoubling, IsCorrectBeyondTheUsualSizes) {
  for (int ranks : {97, 128, 200})
    for (Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather})
      expect_correct({collective, kHalvingDoubling, ranks, 0, {}});
}

}  // namespace
}  // namespace ropewalk

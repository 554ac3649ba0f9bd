#include "schedule/test_support.h"

namespace ropewalk {
namespace {

TEST(Ring, AllReduceOfThreeIsTheTextbook) {
  const ScheduleKey key{Collective::all_reduce, Algorithm::ring, 3, 0, {}};
  EXPECT_EQ(text_of(build_schedule(key, 0)),
            "+>1:2 +<2:1 +>1:1 +<2:0 "   // reduce-scatter: ends with block 0
            "=>1:0 =<2:2 =>1:2 =<2:1");  // all-gather
}

TEST(Ring, ReduceScatterAndAllGatherAreTheHalves) {
  ScheduleKey key{Collective::all_reduce, Algorithm::ring, 5, 0, {}};
  const std::string both = text_of(build_schedule(key, 3));
  key.collective = Collective::reduce_scatter;
  const std::string first = text_of(build_schedule(key, 3));
  key.collective = Collective::all_gather;
  EXPECT_EQ(both, first + " " + text_of(build_schedule(key, 3)));
}

TEST(Ring, BroadcastAndReduceAreChainsThatEndAtTheRoot) {
  ScheduleKey key{Collective::broadcast, Algorithm::ring, 4, 2, {}};
  EXPECT_EQ(text_of(build_schedule(key, 2)), "=>3:0");
  EXPECT_EQ(text_of(build_schedule(key, 3)), "=<2:0 =>0:0");
  EXPECT_EQ(text_of(build_schedule(key, 1)), "=<0:0");
  key.collective = Collective::reduce;
  EXPECT_EQ(text_of(build_schedule(key, 2)), "+<3:0");
  EXPECT_EQ(text_of(build_schedule(key, 3)), "+<0:0 +>2:0");
  EXPECT_EQ(text_of(build_schedule(key, 1)), "+>0:0");
}

TEST(Ring, IsBandwidthOptimal) {
  for (int ranks : {2, 7, 33}) {
    const VerifyReport report = verify({Collective::all_reduce, Algorithm::ring, ranks, 0, {}}, 1);
    EXPECT_DOUBLE_EQ(report.sent_max, 2.0 * (ranks - 1) / ranks);
    EXPECT_EQ(report.rounds, 2 * (ranks - 1));
  }
}

TEST(Ring, EveryRankSendsToOneRankOnly) {
  for (int rank = 0; rank < 9; ++rank)
    for (const Step& step :
         build_schedule({Collective::all_reduce, Algorithm::ring, 9, 0, {}}, rank).steps)
      EXPECT_EQ(step.peer, is_send(step.op) ? (rank + 1) % 9 : (rank + 8) % 9);
}

TEST(Ring, IsCorrectBeyondTheUsualSizes) {
  for (Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                Collective::all_gather, Collective::broadcast, Collective::reduce})
    expect_correct({collective, Algorithm::ring, 150, 77, {}});
}

}  // namespace
}  // namespace ropewalk

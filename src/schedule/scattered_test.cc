#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kScattered = Algorithm::scattered;

TEST(Scattered, BroadcastOfThreeFromRankOne) {
  const ScheduleKey key{Collective::broadcast, kScattered, 3, 1, {}};
  EXPECT_EQ(text_of(build_schedule(key, 1)), "=>2:2 =>0:0 =>2:1 =>0:1");
  EXPECT_EQ(text_of(build_schedule(key, 0)), "=<1:0 =>2:0 =<2:2 =<1:1");
}

TEST(Scattered, ReduceOfThreeToRankZero) {
  const ScheduleKey key{Collective::reduce, kScattered, 3, 0, {}};
  EXPECT_EQ(text_of(build_schedule(key, 0)), "+>1:1 +>2:2 +<2:0 +<1:0 =<2:2 =<1:1");
  EXPECT_EQ(text_of(build_schedule(key, 1)), "+>2:2 +>0:0 +<0:1 +<2:1 =>0:1");
}

TEST(Scattered, IsCorrectForEveryRoot) {
  for (const Collective collective : {Collective::broadcast, Collective::reduce})
    for (int ranks : {1, 2, 3, 5, 8})
      for (int root = 0; root < ranks; ++root)
        expect_correct({collective, kScattered, ranks, root, {}});
}

}  // namespace
}  // namespace ropewalk

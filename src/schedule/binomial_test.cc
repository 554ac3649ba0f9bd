#include "schedule/test_support.h"

namespace ropewalk {
namespace {

constexpr Algorithm kBinomial = Algorithm::binomial;

TEST(Binomial, ScatterOfSixFromRankOne) {
  const ScheduleKey key{Collective::scatter, kBinomial, 6, 1, {}};
  EXPECT_EQ(text_of(build_schedule(key, 1)), "=>5:0 =>5:5 =>3:4 =>3:3 =>2:2");
  EXPECT_EQ(text_of(build_schedule(key, 5)), "=<1:0 =>0:0 =<1:5");
}

TEST(Binomial, GatherOfSixToRankZero) {
  const ScheduleKey key{Collective::gather, kBinomial, 6, 0, {}};
  EXPECT_EQ(text_of(build_schedule(key, 0)), "=<1:1 =<2:2 =<2:3 =<4:4 =<4:5");
  EXPECT_EQ(text_of(build_schedule(key, 2)), "=>0:2 =<3:3 =>0:3");
}

TEST(Binomial, IsCorrectForEveryRoot) {
  for (const Collective collective : {Collective::gather, Collective::scatter})
    for (int ranks : {1, 2, 3, 5, 6, 8, 13})
      for (int root = 0; root < ranks; ++root)
        expect_correct({collective, kBinomial, ranks, root, {}});
}

}  // namespace
}  // namespace ropewalk

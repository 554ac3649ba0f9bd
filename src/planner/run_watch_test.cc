#include "planner/run_watch.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

Trials::Times all(double seconds) {
  Trials::Times times;
  times.fill(seconds);
  return times;
}

TEST(RunWatch, TimesFewOfManyRuns) {
  for (const double agreement_s : {50e-6, 10e-3}) {
    RunWatch watch(1e-3, agreement_s);
    constexpr int kRuns = 20000;
    int timed = 0, agreements = 0;
    for (int run = 0; run < kRuns; ++run) {
      const RunWatch::Run next = watch.next_run();
      EXPECT_FALSE(next.is_timed && next.agrees);
      timed += next.is_timed;
      if (!next.agrees) continue;
      EXPECT_EQ(timed, 4 * ++agreements);
    }
    EXPECT_GT(agreements, 1);
    EXPECT_LE(agreements * agreement_s, 0.011 * kRuns * 1e-3);
  }
}

TEST(RunWatch, TellsOfRunsThatStaySlow) {
  RunWatch watch(1e-3, 50e-6);
  watch.set_times(all(2e-3));
  EXPECT_DOUBLE_EQ(watch.usual_s(), 2e-3);
  watch.set_times(all(5.9e-3));
  EXPECT_FALSE(watch.is_slow());
  watch.set_times(all(6.1e-3));
  EXPECT_FALSE(watch.is_slow()) << "for a moment";
  watch.set_times(all(7e-3));
  EXPECT_TRUE(watch.is_slow());
  EXPECT_DOUBLE_EQ(watch.usual_s(), 2e-3);
  EXPECT_DOUBLE_EQ(watch.last_s(), 7e-3);
  watch.set_times(all(2.5e-3));
  EXPECT_FALSE(watch.is_slow());
}

TEST(RunWatch, OneFastRunOfThoseThatAreTimedIsEnough) {
  RunWatch watch(1e-3, 50e-6);
  watch.set_usual(1e-3);
  for (int i = 0; i < 3; ++i) watch.set_times({9e-3, 9e-3, 1e-3, 9e-3});
  EXPECT_FALSE(watch.is_slow());
}

TEST(RunWatch, LongRunsAreSlowAtOnce) {
  RunWatch watch(0.1, 50e-6);
  watch.set_usual(0.1);
  watch.set_times(all(0.6));
  EXPECT_TRUE(watch.is_slow());
}

TEST(RunWatch, HeedsNoTimesThatAreNotKnown) {
  RunWatch watch(1e-3, 50e-6);
  watch.set_times({-1, 1, 1, 1});
  EXPECT_EQ(watch.usual_s(), 0);
  watch.set_times(all(1e-3));
  for (int i = 0; i < 3; ++i) watch.set_times({1, 1, 1, -1});
  EXPECT_FALSE(watch.is_slow());
}

}  // namespace
}  // namespace ropewalk

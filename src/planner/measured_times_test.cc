#include <gtest/gtest.h>

#include "planner/planner_testing.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

TEST(Planner, MeasuredTimesCountMoreThanTheCostModel) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = slow_network(8, 8);
  ASSERT_EQ(chosen(q), recursive_doubling);
  for (const size_t bytes : {8, 4104})
    for (const Algorithm algorithm : algorithms_for(all_reduce)) {
      const double tree_s = bytes == 8 ? 1e-3 : 4e-3;
      const double others_s = algorithm == recursive_doubling ? 2e-3 : 9e-3;
      q.times.push_back({all_reduce, algorithm, bytes, algorithm == tree ? tree_s : others_s});
    }
  for (const size_t bytes : {1, 8}) {
    q.bytes = bytes;
    EXPECT_EQ(chosen(q), tree);
    EXPECT_NEAR(choose(q).predicted_us, 1000, 5);
  }
  q.bytes = 2056;  // half of the way
  EXPECT_DOUBLE_EQ(predicted_us(choose(q), tree), 2500);
  EXPECT_EQ(chosen(q), recursive_doubling);
}

// Beyond what was measured the model tells what more bytes take; what was not measured is as much
// slower than modelled as what was.
TEST(Planner, WhatWasMeasuredCorrectsTheRest) {
  using enum Collective;
  using enum Algorithm;
  const PlanRequest unmeasured = slow_network(8, 8);
  const auto modelled_us = [&](size_t bytes, Algorithm algorithm) {
    PlanRequest q = unmeasured;
    q.bytes = bytes;
    return predicted_us(choose(q), algorithm);
  };
  PlanRequest q = unmeasured;
  const double one_us = 3 * modelled_us(8, one_shot),
               rd_us = 3 * modelled_us(8, recursive_doubling);
  q.times = {{all_reduce, one_shot, 8, 1e-6 * one_us},
             {all_reduce, recursive_doubling, 8, 1e-6 * rd_us}};
  // Half as much more, since that is a guess.
  EXPECT_NEAR(predicted_us(choose(q), ring), 4.5 * modelled_us(8, ring), 1e-6);
  q.bytes = kMiB;
  for (const Algorithm algorithm : {ring, recursive_doubling})
    EXPECT_NEAR(predicted_us(choose(q), algorithm),
                modelled_us(kMiB, algorithm) + 2 * modelled_us(8, algorithm), 1e-6);
  q.collective = broadcast;
  PlanRequest other = unmeasured;
  other.collective = broadcast;
  q.bytes = 8;
  EXPECT_NEAR(choose(q).predicted_us, 3 * choose(other).predicted_us, 1e-6);
}

// What reduce_scatter was measured to take tells of all_gather, and else what all_reduce was.
TEST(Planner, AlgorithmsAreAsSlowInOtherCollectivesAsWhereTheyWereMeasured) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = slow_network(4096, 8);
  q.collective = reduce_scatter;
  const auto modelled_us = [&](Collective collective, Algorithm algorithm) {
    PlanRequest unmeasured = q;
    unmeasured.times = {};
    unmeasured.collective = collective;
    return predicted_us(choose(unmeasured), algorithm);
  };
  const double hd_s = 1e-6 * modelled_us(all_reduce, halving_doubling),
               direct_s = 1e-6 * modelled_us(all_reduce, direct);
  for (const bool is_direct : {false, true}) {
    q.times = {{all_reduce, halving_doubling, 4096, (is_direct ? 9 : 2) * hd_s},
               {all_reduce, direct, 4096, (is_direct ? 2 : 9) * direct_s}};
    q.collective = reduce_scatter;
    EXPECT_EQ(chosen(q), is_direct ? direct : halving_doubling);
    EXPECT_NEAR(predicted_us(choose(q), direct),
                (is_direct ? 2 : 9) * modelled_us(reduce_scatter, direct), 1e-6);
    q.collective = all_gather;
    EXPECT_EQ(chosen(q), is_direct ? direct : halving_doubling);
    q.times.push_back({reduce_scatter, ring, 4096, 1e-6});
    EXPECT_EQ(chosen(q), ring);
    EXPECT_NEAR(choose(q).predicted_us,
                modelled_us(all_gather, ring) / modelled_us(reduce_scatter, ring), 1e-6);
  }
}

// 16 ranks of 8 hosts that shared two CPUs: leaders took 64 KiB, 11 ms, where two_level takes 5,
// because algorithms with most messages had taken four times what was modelled for 8 bytes.
TEST(Planner, WhatIsFarSlowerThanMostDoesNotStandForAll) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = request(all_reduce, 64 * kKiB, 16, 2);
  q.cost.inter = {123e-6, 21e-6, 1 / 23.4e6};
  q.times = {{all_reduce, leaders, 8, 315e-6},
             {all_reduce, recursive_doubling, 8, 624e-6},
             {all_reduce, one_shot, 8, 2909e-6},
             {all_reduce, direct, 8, 3297e-6}};
  EXPECT_EQ(chosen(q), two_level);
  q.bytes = 4 * kKiB;
  EXPECT_EQ(chosen(q), leaders);
}

// `ropewalk tune` leaves out what was far too slow with shorter vectors. The model must not find it
// the faster one where it was not measured.
TEST(Planner, WhatWasLeftOutAsTooSlowStaysSlower) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = slow_network(8 * kMiB, 8);
  ASSERT_EQ(chosen(q), ring);
  const double modelled_s = 1e-6 * choose(q).predicted_us;
  q.times = {{all_reduce, ring, 256 * kKiB, 4e-3},
             {all_reduce, tree, 256 * kKiB, 1e-3},
             {all_reduce, tree, 8 * kMiB, 2 * modelled_s}};
  ASSERT_EQ(chosen(q), ring);  // it was not measured for another reason
  q.slow_ones_left_out = true;
  EXPECT_NEAR(predicted_us(choose(q), ring), 8e6 * modelled_s, 1);
  q.bytes = 4 * kMiB;
  EXPECT_NEAR(predicted_us(choose(q), ring), 4 * predicted_us(choose(q), tree), 1);
  q.bytes = 32 * kMiB;  // beyond all: the model counts
  EXPECT_LT(predicted_us(choose(q), ring), 12e6 * modelled_s);
}

// Where only long vectors were measured, short ones are not taken for as long.
TEST(Planner, ShorterVectorsThanMeasuredTakeLess) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = slow_network(8, 8);
  const Algorithm shortest = chosen(q);
  ASSERT_NE(shortest, ring);
  q.bytes = kMiB;
  for (const Candidate& candidate : choose(q).candidates)
    q.times.push_back({all_reduce, candidate.algorithm, kMiB, 1e-6 * candidate.predicted_us});
  ASSERT_EQ(chosen(q), ring);
  q.bytes = 8;
  EXPECT_EQ(chosen(q), shortest);
}

// A network that lets some KiB pass at once made 4 KiB by ring faster than modelled. Of 8 bytes by
// ring, which were not measured, it was concluded that they take a third of that.
TEST(Planner, LongerCallsThatWereFastDoNotMakeShortOnesFaster) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = slow_network(8, 4);
  q.cost.inter = {5e-6, 15e-6, 40e-9};
  q.times = {{all_reduce, recursive_doubling, 8, 75e-6},
             {all_reduce, recursive_doubling, 4096, 320e-6},
             {all_reduce, ring, 4096, 145e-6}};
  EXPECT_EQ(chosen(q), recursive_doubling);
  EXPECT_GT(predicted_us(choose(q), ring), 100);
  q.bytes = 1;
  EXPECT_EQ(chosen(q), recursive_doubling);
  q.bytes = 4096;
  EXPECT_EQ(chosen(q), ring);
  EXPECT_NEAR(choose(q).predicted_us, 145, 1e-6);
}

// At 64 KiB direct was taken for slower than halving_doubling, which has fewer messages.
TEST(Planner, LinksHideWhatCpusDoForMessagesThatGoAtOnce) {
  using enum Collective;
  using enum Algorithm;
  PlanRequest q = slow_network(64 * kKiB, 8);
  const double modelled_us = predicted_us(choose(q), direct);
  const auto with_times = [&](size_t bytes) {
    q.times = {{all_reduce, direct, bytes, 2e-3}, {all_reduce, halving_doubling, bytes, 1.2e-3}};
    return choose(q);
  };
  // The shortest calls wait and wake: that is not hidden.
  EXPECT_EQ(with_times(8).algorithm, halving_doubling);
  EXPECT_GT(predicted_us(with_times(8), direct), modelled_us + 1500);
  with_times(4 * kKiB);
  q.times.insert(q.times.begin(), {all_reduce, recursive_doubling, 8, 600e-6});
  EXPECT_EQ(choose(q).algorithm, direct);
  EXPECT_DOUBLE_EQ(predicted_us(choose(q), direct), modelled_us);
}

}  // namespace
}  // namespace ropewalk

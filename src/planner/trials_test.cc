#include "planner/trials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace ropewalk {
namespace {

constexpr double kAgreement_s = 300e-6;

/// Runs of a kind of call whose algorithms take what `seconds_of` says.
struct Simulated {
  Trials trials;
  std::function<double(Algorithm)> seconds_of;
  double total_s = 0, agreements = 0;
  std::vector<double> timed = {};
  std::vector<Algorithm> tried = {};

  Algorithm run() {
    if (trials.needs_times()) {
      Trials::Times times;
      EXPECT_EQ(timed.size(), times.size());
      std::ranges::copy(timed, times.begin());
      trials.set_times(times);
      timed.clear();
    }
    const Trials::Run run = trials.next_run();
    total_s += seconds_of(run.choice.algorithm);
    if (run.is_timed) {
      timed.push_back(seconds_of(run.choice.algorithm));
      if (tried.empty() || tried.back() != run.choice.algorithm)
        tried.push_back(run.choice.algorithm);
    }
    agreements += run.agrees ? 1 : 0;
    return run.choice.algorithm;
  }
};

Trials three(double ring_s = 1e-3, double tree_s = 1.5e-3, double direct_s = 2e-3) {
  return Trials({{Algorithm::ring, 65536, ring_s},
                 {Algorithm::tree, 65536, tree_s},
                 {Algorithm::direct, 65536, direct_s}},
                kAgreement_s);
}

TEST(Trials, NothingIsTriedWhereThePlannerWasRight) {
  Simulated job{three(), [](Algorithm) { return 1.05e-3; }};
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(job.run(), Algorithm::ring);
  EXPECT_TRUE(job.trials.is_over());
  EXPECT_EQ(job.agreements, 1);
}

TEST(Trials, TheFastestIsKept) {
  Simulated job{
      three(), [](Algorithm algorithm) {
        return algorithm == Algorithm::ring ? 4e-3 : algorithm == Algorithm::tree ? 5e-3 : 3e-3;
      }};
  for (int i = 0; i < 20000; ++i) job.run();
  EXPECT_EQ(job.tried, (std::vector{Algorithm::ring, Algorithm::tree, Algorithm::direct}));
  EXPECT_TRUE(job.trials.is_over());
  EXPECT_EQ(job.run(), Algorithm::direct);
  EXPECT_DOUBLE_EQ(job.trials.best_s(), 3e-3);
  EXPECT_DOUBLE_EQ(job.trials.planned_s(), 4e-3);
}

TEST(Trials, WhatIsPredictedToTakeLongerIsNotTried) {
  Simulated job{three(1e-3, 3e-3, 10e-3), [](Algorithm) { return 4e-3; }};
  for (int i = 0; i < 20000; ++i) job.run();
  EXPECT_EQ(job.tried, (std::vector{Algorithm::ring, Algorithm::tree}));
}

// Whenever one looks, and however bad what is tried.
TEST(Trials, TakeTwoPercentOfTheTime) {
  for (const double bad : {1.0, 2.0}) {
    Simulated job{three(), [bad](Algorithm algorithm) {
                    return algorithm == Algorithm::ring ? 4e-3 : bad * 4e-3;
                  }};
    for (int i = 1; i <= 20000; ++i) {
      job.run();
      EXPECT_LE(job.total_s + job.agreements * kAgreement_s, 1.02 * i * 4e-3 + 1e-9) << i;
    }
    EXPECT_EQ(job.tried.size(), 3u);
  }
  // One that takes 20 times as long is followed by so many more runs before the next.
  Simulated job{three(),
                [](Algorithm algorithm) { return algorithm == Algorithm::ring ? 4e-3 : 80e-3; }};
  int runs = 0;
  double before_s = 0;
  for (;; ++runs) {
    before_s = job.total_s;
    if (job.run() == Algorithm::direct) break;
  }
  EXPECT_LE(before_s + job.agreements * kAgreement_s, 1.02 * runs * 4e-3);
}

TEST(Trials, UnknownTimesEndThem) {
  for (const double unknown : {0.0, 1e9, std::numeric_limits<double>::quiet_NaN()}) {
    Simulated job{three(), [unknown](Algorithm) { return unknown; }};
    for (int i = 0; i < 5000; ++i) EXPECT_EQ(job.run(), Algorithm::ring);
    EXPECT_TRUE(job.trials.is_over());
  }
}

TEST(Trials, AloneThereIsNothingToTry) {
  Trials trials({{Algorithm::ring, 65536, 1e-3}}, kAgreement_s);
  EXPECT_TRUE(trials.is_over());
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(trials.needs_times());
    EXPECT_FALSE(trials.next_run().is_timed);
  }
}

}  // namespace
}  // namespace ropewalk

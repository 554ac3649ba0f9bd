#include "simulate/training_step.h"

#include <gtest/gtest.h>

#include "ropewalk/status.h"
#include "simulate/plan.h"
#include "synthesize/synthesize.h"

namespace ropewalk {
namespace {

TEST(TrainingStep, WhatFitsBesideTheBackwardPassIsNotExposed) {
  const Network network = network_of_template("flat", 8);
  const TrainingModel model = parse_training_model(
      R"({"backward_ms": 100, "buckets": [{"ready_ms": 100, "bytes": 1000000},
                                          {"ready_ms": 20, "bytes": 25000000}]})");
  EXPECT_EQ(model.buckets[0].bytes, 25'000'000u);
  const TrainingStep step = simulate_step(network, model);
  EXPECT_GT(step.exposed_s, 0);
  EXPECT_LT(step.exposed_s, step.communicating_s / 2);
  EXPECT_DOUBLE_EQ(step.seconds, 0.1 + step.exposed_s);
}

TEST(TrainingStep, ModelsThatMakeNoSenseAreRefused) {
  for (const char* text : {"", "{}", R"({"backward_ms": 1})", R"({"backward_ms": 1, "buckets": 2})",
                           R"({"backward_ms": 1, "buckets": [{"ready_ms": 2, "bytes": 8}]})",
                           R"({"backward_ms": 1, "buckets": [{"ready_ms": 1}]})",
                           R"({"backward_ms": 1, "buckets": [], "colour": 3})"})
    EXPECT_THROW(parse_training_model(text), Error) << text;
}

const TrainingModel kOneBucket{.backward_s = 0, .buckets = {{0, 8 << 20}}};

// Jobs run them there by themselves.
TEST(TrainingStep, RunsWhatIsMadeForTheNetwork) {
  if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  const Network network = network_of_template("racks:2x4:uplink=16:rate=1gbit", 0);
  const TrainingStep step = simulate_step(network, kOneBucket);
  EXPECT_EQ(step.calls[0].algorithm, Algorithm::synthesized);
  const TrainingStep ring = simulate_step(network, kOneBucket, Algorithm::ring);
  EXPECT_EQ(ring.calls[0].algorithm, Algorithm::ring);
  EXPECT_LT(kSynthesisGainMin * step.seconds, ring.seconds);
  const TrainingStep forced = simulate_step(network, kOneBucket, Algorithm::synthesized);
  EXPECT_EQ(forced.seconds, step.seconds);
}

TEST(TrainingStep, WhatIsTooLongCountsByItsClosedForm) {
  const Network network = network_of_template("flat", 8192);
  const TrainingModel model{.backward_s = 0, .buckets = {{0, 64 << 20}}};
  const TrainingStep step = simulate_step(network, model, Algorithm::tree);
  EXPECT_FALSE(step.calls[0].is_simulated);
  EXPECT_GT(step.seconds, least_seconds(network, Collective::all_reduce, 0, 64 << 20));
  EXPECT_TRUE(simulate_step(network, kOneBucket, Algorithm::ring).calls[0].is_simulated);
}

}  // namespace
}  // namespace ropewalk

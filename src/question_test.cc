#include "question.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

Question question(Means within, Means between, const std::vector<int>& hosts) {
  Call call;
  call.count = 1 << 20;
  return question_for(call, Knobs(), {within, between}, hosts);
}

bool is(const LinkCost& cost, const LinkCost& expected) {
  return cost.latency_s == expected.latency_s && cost.overhead_s == expected.overhead_s &&
         cost.s_per_byte == expected.s_per_byte;
}

TEST(Question, CostsAreThoseOfTheTransports) {
  const Question mixed = question(Means::shm, Means::verbs, {0, 0, 1, 1});
  EXPECT_TRUE(is(mixed.cost.intra, kSharedMemoryLink));
  EXPECT_TRUE(is(mixed.cost.inter, kVerbsLink));
  const Question verbs = question(Means::verbs, Means::none, {0, 0});
  EXPECT_TRUE(is(verbs.cost.intra, kVerbsLink));
  const Question tcp = question(Means::tcp, Means::tcp, {0, 0, 1});
  EXPECT_TRUE(is(tcp.cost.intra, kTcpLink));
  EXPECT_TRUE(is(tcp.cost.inter, kTcpLink));
}

TEST(Question, OnlySharedMemoryIsMapped) {
  EXPECT_TRUE(question(Means::shm, Means::none, {0, 0}).mapped);
  EXPECT_TRUE(question(Means::ucx_shm, Means::none, {0, 0}).mapped);
  EXPECT_FALSE(question(Means::ucx, Means::none, {0, 0}).mapped);
  EXPECT_FALSE(question(Means::verbs, Means::none, {0, 0}).mapped);
  EXPECT_FALSE(question(Means::tcp, Means::none, {0, 0}).mapped);
  EXPECT_FALSE(question(Means::shm, Means::tcp, {0, 0, 1}).mapped);
}

// What is faster on the wire must not be predicted to take longer.
TEST(Question, VerbsArePredictedBetweenSharedMemoryAndTcp) {
  Call call;
  call.type = DataType::float32;
  call.op = kSum;
  for (const size_t count : {size_t{2}, size_t{1} << 12, size_t{1} << 20}) {
    call.count = count;
    const auto us = [&](Means means) {
      return choose_for(call, Knobs(), {means, Means::none}, {0, 0}).predicted_us;
    };
    EXPECT_LT(us(Means::shm), us(Means::verbs)) << count;
    EXPECT_LT(us(Means::verbs), us(Means::tcp)) << count;
  }
}

}  // namespace
}  // namespace ropewalk

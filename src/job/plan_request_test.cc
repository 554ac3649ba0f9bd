#include "job/plan_request.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

PlanRequest request(TransportKind within, TransportKind between, const std::vector<int>& hosts) {
  Call call;
  call.count = 1 << 20;
  return plan_request(call, Config(), {within, between}, hosts);
}

bool is(const LinkCost& cost, const LinkCost& expected) {
  return cost.latency_s == expected.latency_s && cost.overhead_s == expected.overhead_s &&
         cost.s_per_byte == expected.s_per_byte;
}

TEST(PlanRequest, CostsAreThoseOfTheTransports) {
  const PlanRequest mixed = request(TransportKind::shm, TransportKind::verbs, {0, 0, 1, 1});
  EXPECT_TRUE(is(mixed.cost.intra, kSharedMemoryLink));
  EXPECT_TRUE(is(mixed.cost.inter, kVerbsLink));
  const PlanRequest verbs = request(TransportKind::verbs, TransportKind::none, {0, 0});
  EXPECT_TRUE(is(verbs.cost.intra, kVerbsLink));
  const PlanRequest tcp = request(TransportKind::tcp, TransportKind::tcp, {0, 0, 1});
  EXPECT_TRUE(is(tcp.cost.intra, kTcpLink));
  EXPECT_TRUE(is(tcp.cost.inter, kTcpLink));
}

TEST(PlanRequest, OnlySharedMemoryIsMapped) {
  EXPECT_TRUE(request(TransportKind::shm, TransportKind::none, {0, 0}).mapped);
  EXPECT_TRUE(request(TransportKind::ucx_shm, TransportKind::none, {0, 0}).mapped);
  EXPECT_FALSE(request(TransportKind::ucx, TransportKind::none, {0, 0}).mapped);
  EXPECT_FALSE(request(TransportKind::verbs, TransportKind::none, {0, 0}).mapped);
  EXPECT_FALSE(request(TransportKind::tcp, TransportKind::none, {0, 0}).mapped);
  EXPECT_FALSE(request(TransportKind::shm, TransportKind::tcp, {0, 0, 1}).mapped);
}

// What is faster on the wire must not be predicted to take longer.
TEST(PlanRequest, VerbsArePredictedBetweenSharedMemoryAndTcp) {
  Call call;
  call.type = DataType::float32;
  call.op = kSum;
  for (const size_t count : {size_t{2}, size_t{1} << 12, size_t{1} << 20}) {
    call.count = count;
    const auto us = [&](TransportKind kind) {
      return plan_for(call, Config(), {kind, TransportKind::none}, {0, 0}).predicted_us;
    };
    EXPECT_LT(us(TransportKind::shm), us(TransportKind::verbs)) << count;
    EXPECT_LT(us(TransportKind::verbs), us(TransportKind::tcp)) << count;
  }
}

}  // namespace
}  // namespace ropewalk

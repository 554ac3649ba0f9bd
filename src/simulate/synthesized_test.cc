#include "simulate/synthesized.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace ropewalk {
namespace {

PlanRequest all_reduce_on(const Network& network, size_t bytes) {
  return request_on(network, Collective::all_reduce, 0, bytes);
}

/// 200 Mbit/s for each host.
Network slow_network(const std::string& words) {
  return network_of_template(words + ":rate=0.2gbit:latency=100us:overhead=5us", 0);
}

class SimulateSynthesized : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_synthesize()) GTEST_SKIP() << "without Boost.Graph";
  }
};

TEST_F(SimulateSynthesized, IsNearTheBoundWhereRingsAreNot) {
  Network slow = slow_network("flat:hosts=8");
  slow.links[7].s_per_byte *= 4;
  Network unequal = slow_network("flat:hosts=4");
  for (int i = 0; i < 4; ++i) unequal.hosts[static_cast<size_t>(i)].ranks = i + 1;
  const size_t bytes = 32 << 20;
  for (const Network& network : {slow_network("racks:2x4:uplink=16"), slow, unequal}) {
    Routes routes(network);
    const PlanRequest request = all_reduce_on(network, bytes);
    const SimulatedSynthesis found = simulate_synthesized(routes, request);
    ASSERT_EQ(found.why_not, "");
    const double ring = simulate_call(routes, call_for(request, Algorithm::ring)).seconds();
    const double least = found.made.least_s_per_byte * static_cast<double>(bytes);
    EXPECT_GE(found.call.seconds(), least);
    EXPECT_LE(found.call.seconds(), least / 0.9);
    EXPECT_LT(found.call.seconds(), ring);
    // No link is busier than was planned.
    EXPECT_NEAR(found.call.links[0].busy_s, found.made.busy_s_per_byte * static_cast<double>(bytes),
                0.01 * found.call.seconds());
  }
}

TEST_F(SimulateSynthesized, RepeatsTheForestAsOftenAsIsWorthIt) {
  Network fast = slow_network("flat:hosts=8:ranks=2");
  for (size_t i = 0; i < 4; ++i) fast.links[i].s_per_byte /= 2;
  Routes routes(fast);
  const Forest forest = make_forest(routes, Collective::all_reduce, 0);
  const auto seconds = [&](size_t bytes, int chunks) {
    const Synthesized made = write_schedules(forest, chunks);
    return simulate_call(routes, call_for(all_reduce_on(fast, bytes), made)).seconds();
  };
  const auto chunks = [&](size_t bytes) { return chunks_for(all_reduce_on(fast, bytes), forest); };
  EXPECT_EQ(chunks(8), 1);
  EXPECT_EQ(chunks(64 << 20), chunks_max(forest));
  EXPECT_LT(seconds(64 << 10, chunks(64 << 10)), seconds(64 << 10, chunks_max(forest)));
  EXPECT_LT(seconds(8 << 20, chunks(8 << 20)), seconds(8 << 20, chunks(64 << 10)));
  EXPECT_EQ(chunks_max(make_forest(routes, Collective::all_gather, 0)), 1);
}

TEST_F(SimulateSynthesized, RunsShortMessagesInListOrder) {
  const Network network = slow_network("racks:2x4:uplink=4");
  Routes routes(network);
  const SimulatedSynthesis found = simulate_synthesized(routes, all_reduce_on(network, 8));
  ASSERT_EQ(found.why_not, "");
  EXPECT_GE(found.call.seconds(), least_seconds(network, Collective::all_reduce, 0, 8));
  EXPECT_EQ(found.call.ranks_run, 8);
}

TEST_F(SimulateSynthesized, TellsWhyNot) {
  const Network network = network_of_template("flat:hosts=1:ranks=4", 0);
  Routes routes(network);
  EXPECT_NE(simulate_synthesized(routes, all_reduce_on(network, 1 << 20)).why_not, "");
}

}  // namespace
}  // namespace ropewalk

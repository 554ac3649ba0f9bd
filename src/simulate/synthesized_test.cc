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

TEST_F(SimulateSynthesized, RunsShortMessagesInListOrder) {
  const Network network = slow_network("racks:2x4:uplink=4");
  Routes routes(network);
  const SimulatedSynthesis found = simulate_synthesized(routes, all_reduce_on(network, 8));
  ASSERT_EQ(found.why_not, "");
  EXPECT_GE(found.call.seconds(), least_seconds(network, Collective::all_reduce, 0, 8));
  EXPECT_EQ(found.call.ranks_run, 8);
}

/// One tree of depth 3 or 6: what is handed on waits for whole slices.
TEST_F(SimulateSynthesized, TakesShorterSlicesWhereTheyGain) {
  for (const char* words : {"racks:2x4:uplink=16", "racks:4x4:uplink=8"})
    for (const char* costs :
         {":rate=10gbit:latency=20us:overhead=3us", ":rate=10gbit:latency=100us:overhead=3us",
          ":rate=100gbit:latency=5us:overhead=1us"}) {
      const Network network = network_of_template(std::string(words) + costs, 0);
      Routes routes(network);
      for (const Collective collective :
           {Collective::all_reduce, Collective::broadcast, Collective::reduce}) {
        const Synthesized made = synthesize(routes, collective, 0);
        for (const size_t bytes : {size_t{64} << 10, size_t{1} << 20, size_t{8} << 20}) {
          const PlanRequest request = request_on(network, collective, 0, bytes);
          const size_t longest = tree_slice_bytes(request, made);
          const double before_s = simulate_call(routes, call_for(request, made, longest)).seconds();
          const SimulatedSlices sliced = simulate_slices(routes, request, made);
          EXPECT_LE(sliced.call.seconds(), before_s);
          EXPECT_EQ(sliced.shorter, sliced.slice_bytes < longest);
          EXPECT_EQ(sliced.call,
                    simulate_call(routes, call_for(request, made, sliced.slice_bytes)));
          if (collective == Collective::broadcast && bytes == 1 << 20) {
            EXPECT_LT(sliced.call.seconds(), 0.95 * before_s) << words << costs;
          }
        }
      }
    }
}

TEST_F(SimulateSynthesized, TellsWhyNot) {
  const Network network = network_of_template("flat:hosts=1:ranks=4", 0);
  Routes routes(network);
  EXPECT_NE(simulate_synthesized(routes, all_reduce_on(network, 1 << 20)).why_not, "");
}

}  // namespace
}  // namespace ropewalk

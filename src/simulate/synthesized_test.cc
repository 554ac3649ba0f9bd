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
    const Synthesized made = write_schedules(forest, chunks, kChunksAhead);
    return simulate_call(routes, call_for(all_reduce_on(fast, bytes), made)).seconds();
  };
  const auto chunks = [&](size_t bytes) { return chunks_for(all_reduce_on(fast, bytes), forest); };
  EXPECT_EQ(chunks(8), 1);
  EXPECT_EQ(chunks(64 << 20), chunks_max(forest));
  EXPECT_LT(seconds(64 << 10, chunks(64 << 10)), seconds(64 << 10, chunks_max(forest)));
  EXPECT_LT(seconds(8 << 20, chunks(8 << 20)), seconds(8 << 20, chunks(64 << 10)));
  EXPECT_EQ(chunks_max(make_forest(routes, Collective::all_gather, 0)), 1);
}

/// By how many chunks the message that is most ahead is: it leaves before others of such a chunk
/// have come to its sender.
int most_ahead(const Network& network, const Forest& forest, int chunks, int chunks_ahead) {
  Routes routes(network);
  const Synthesized made = write_schedules(forest, chunks, chunks_ahead);
  CallToSimulate call = call_for(all_reduce_on(network, 8 << 20), made);
  std::vector<SimulatedMessage> messages;
  call.on_message = [&](const SimulatedMessage& message) { messages.push_back(message); };
  simulate_call(routes, call);
  const auto chunk_of = [&](const SimulatedMessage& message) {
    return message.block / forest.spread.blocks;
  };
  int most = 0;
  for (const SimulatedMessage& sent : messages)
    for (const SimulatedMessage& other : messages)
      if (other.to == sent.from && other.arrived_s > sent.posted_s)
        most = std::max(most, chunk_of(sent) - chunk_of(other));
  return most;
}

Network far_network() {
  Network far = slow_network("racks:2x4:uplink=16");
  for (NetworkLink& link : far.links) link.latency_s = 0.01;
  return far;
}

TEST_F(SimulateSynthesized, NoRankGetsFarAhead) {
  const Network far = far_network();
  Routes routes(far);
  const Forest forest = make_forest(routes, Collective::all_reduce, 0);
  EXPECT_GT(most_ahead(far, forest, 32, 32), 2);
  EXPECT_LE(most_ahead(far, forest, 32, 2), 2);
  EXPECT_LE(most_ahead(far, forest, 32, 1), 1);
}

TEST_F(SimulateSynthesized, RanksAreAsFarAheadAsLatenciesAsk) {
  const auto ahead = [](const Network& network, const Forest& forest) {
    return chunks_ahead_for(all_reduce_on(network, 0), forest);
  };
  const Network near = slow_network("racks:2x4:uplink=16"), far = far_network();
  Routes near_routes(near), routes(far);
  EXPECT_EQ(ahead(near, make_forest(near_routes, Collective::all_reduce, 0)), kChunksAhead);
  const Forest forest = make_forest(routes, Collective::all_reduce, 0);
  const PlanRequest request = all_reduce_on(far, 8 << 20);
  const int chunks = chunks_for(request, forest);
  const auto seconds = [&](int chunks_ahead) {
    return simulate_call(routes, call_for(request, write_schedules(forest, chunks, chunks_ahead)))
        .seconds();
  };
  EXPECT_GT(ahead(far, forest), kChunksAhead);
  EXPECT_LT(seconds(ahead(far, forest)), 1.01 * seconds(chunks)) << chunks;
  EXPECT_LT(seconds(ahead(far, forest)), 0.9 * seconds(1)) << chunks;
}

TEST_F(SimulateSynthesized, SlicesOfABlockAreAboutAsLong) {
  const Network network = slow_network("racks:2x4:uplink=16");
  Routes routes(network);
  const Synthesized made = write_schedules(make_forest(routes, Collective::all_reduce, 0), 1, 1);
  for (const size_t block : {1000u, 16000u, 17000u, 50000u, 1000000u}) {
    const auto trees = static_cast<size_t>(made.trees);
    const size_t slice = tree_slice_bytes(all_reduce_on(network, trees * block), made);
    EXPECT_EQ(slice % 64, 0u);
    EXPECT_LE(slice, (16u << 10) + 64);
    const size_t slices = (block + slice - 1) / slice;
    EXPECT_LE(slice * slices - block, 64 * slices) << block;
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

TEST_F(SimulateSynthesized, TellsWhyNot) {
  const Network network = network_of_template("flat:hosts=1:ranks=4", 0);
  Routes routes(network);
  EXPECT_NE(simulate_synthesized(routes, all_reduce_on(network, 1 << 20)).why_not, "");
}

}  // namespace
}  // namespace ropewalk

#include "simulate/simulate_call.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ropewalk/status.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

SimulatedCall simulated(const Network& network, Collective collective, Algorithm algorithm,
                        size_t bytes, size_t slice_bytes = 256 << 10) {
  Routes routes(network);
  CallToSimulate call = call_for(request_on(network, collective, 0, bytes), algorithm);
  call.slice_bytes = slice_bytes;
  return simulate_call(routes, call);
}

TEST(SimulateCall, OneRankTakesNoTime) {
  const Network network = network_of_template("flat", 1);
  EXPECT_EQ(simulated(network, Collective::all_reduce, Algorithm::tree, 1 << 30).ps, 0);
}

TEST(SimulateCall, NothingBeatsTheBound) {
  for (const char* words :
       {"flat:hosts=8", "racks:4x4:uplink=4", "rail:hosts=4:gpus=4", "fat-tree:k=4:uplink=4",
        "torus:3x3", "racks:2x4:ranks=3", "flat:hosts=1:ranks=6"}) {
    const Network network = network_of_template(words, 0);
    for (int c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      for (const Algorithm algorithm : algorithms_for(collective))
        for (const size_t bytes : {size_t{8}, size_t{100'000}, size_t{4 << 20}})
          EXPECT_GE(simulated(network, collective, algorithm, bytes).seconds(),
                    least_seconds(network, collective, 0, bytes) * (1 - 1e-9))
              << words << " " << name_of(collective) << " " << name_of(algorithm) << " " << bytes;
    }
  }
}

TEST(SimulateCall, LongRingsReachTheBound) {
  const Network network = network_of_template("flat:hosts=8", 0);
  const size_t bytes = 256 << 20;
  EXPECT_LT(simulated(network, Collective::all_reduce, Algorithm::ring, bytes).seconds(),
            1.1 * least_seconds(network, Collective::all_reduce, 0, bytes));
}

// The bound was that of a vector of which each rank had a part.
TEST(SimulateCall, LongAllToAllsReachTheBound) {
  const Network network = network_of_template("flat:hosts=8", 0);
  const size_t bytes = 256 << 20;
  EXPECT_LT(simulated(network, Collective::all_to_all, Algorithm::direct, bytes).seconds(),
            1.1 * least_seconds(network, Collective::all_to_all, 0, bytes));
}

TEST(SimulateCall, SlicesPipelineAChain) {
  const Network network = network_of_template("flat:hosts=6", 0);
  const size_t bytes = 16 << 20;
  const auto broadcast = [&](size_t slice) {
    return simulated(network, Collective::broadcast, Algorithm::ring, bytes, slice).ps;
  };
  EXPECT_LT(broadcast(256 << 10), broadcast(bytes) / 3);
}

TEST(SimulateCall, TwoLevelSparesASharedNetworkPort) {
  const Network network = network_of_template("flat:hosts=4:ranks=8:rate=8gbit", 0);
  const auto ps = [&](Algorithm algorithm) {
    return simulated(network, Collective::all_reduce, algorithm, 64 << 20).ps;
  };
  EXPECT_GT(ps(Algorithm::direct), 2 * ps(Algorithm::two_level));
  EXPECT_LT(ps(Algorithm::two_level), 1.2 * static_cast<double>(ps(Algorithm::ring)));
}

TEST(SimulateCall, NarrowUplinksAreTheBusiestLinks) {
  const Network network = network_of_template("racks:2x4:uplink=8", 8);
  const SimulatedCall call =
      simulated(network, Collective::all_reduce, Algorithm::direct, 32 << 20);
  const NetworkLink& link = network.links[static_cast<size_t>(call.links[0].way / 2)];
  EXPECT_EQ(network.name_of(link.ends[1]), "core");
  EXPECT_GT(call.links[0].busy_s, 0.7 * call.seconds());
}

TEST(SimulateCall, CountsMessagesAndTellsOfThem) {
  const Network network = network_of_template("flat", 4);
  Routes routes(network);
  std::vector<SimulatedMessage> told;
  CallToSimulate call{.key = {Collective::all_reduce, Algorithm::ring, 4, 0, {}},
                      .bytes = 4 * 20'000,
                      .slice_bytes = 8192,
                      .event_by_event = true,
                      .on_message = [&](const SimulatedMessage& m) { told.push_back(m); }};
  EXPECT_EQ(simulate_call(routes, call).messages, 4u * 6 * 3);  // ranks, sends, slices
  ASSERT_EQ(told.size(), 72u);
  double bytes = 0;
  EXPECT_EQ(std::ranges::count(told, true, &SimulatedMessage::added), 36);  // the ring's first half
  for (const SimulatedMessage& message : told) {
    EXPECT_EQ(message.to, (message.from + 1) % 4);
    EXPECT_LT(message.posted_s, message.arrived_s);
    bytes += message.bytes;
  }
  EXPECT_EQ(bytes, 4.0 * 6 * 20'000);
}

// At most four staging slots are under way: what the receiver has not added is waited for.
TEST(SimulateCall, WindowsHoldBackWhoAddsSlowly) {
  Network network = network_of_template("flat", 2);
  network.add_s_per_byte = 10 * network.links[0].s_per_byte;
  const SimulatedCall call = simulated(network, Collective::reduce, Algorithm::ring, 8 << 20);
  const double adding = static_cast<double>(8 << 20) * network.add_s_per_byte;
  EXPECT_GT(call.seconds(), adding);
  EXPECT_LT(call.seconds(), 1.1 * adding);
}

TEST(SimulateCall, TensOfThousandsOfRanks) {
  const Network network = network_of_template("flat", 1 << 16);
  EXPECT_EQ(simulated(network, Collective::all_reduce, Algorithm::recursive_doubling, 8).ranks_run,
            1);
  const SimulatedCall ring =
      simulated(network, Collective::all_reduce, Algorithm::ring, size_t{1} << 30);
  EXPECT_EQ(ring.messages, 2ull * 65535 * 65536);
  EXPECT_GT(ring.seconds(), least_seconds(network, Collective::all_reduce, 0, size_t{1} << 30));
}

// A hop beyond the 200th was taken for an arrival.
TEST(SimulateCall, WaysMayHaveHundredsOfLinks) {
  const Network network = network_of_template("torus:512", 0);
  const size_t bytes = 64 << 10;
  const SimulatedCall tree = simulated(network, Collective::broadcast, Algorithm::tree, bytes);
  EXPECT_EQ(tree.messages, 2u * 511);
  EXPECT_GE(tree.seconds(), least_seconds(network, Collective::broadcast, 0, bytes));
  const SimulatedCall gathered = simulated(network, Collective::gather, Algorithm::direct, bytes);
  EXPECT_EQ(gathered.messages, 511u);
  EXPECT_GE(gathered.seconds(), least_seconds(network, Collective::gather, 0, bytes));
}

// The number of a rank beyond the 262,144th ran over into the kind of its events.
TEST(SimulateCall, RunsHalfAMillionRanksOneByOne) {
  const Network network = network_of_template("flat:hosts=131072:ranks=4", 0);
  const SimulatedCall call = simulated(network, Collective::broadcast, Algorithm::tree, 8);
  EXPECT_EQ(call.ranks_run, 1 << 19);
  EXPECT_EQ(call.messages, 2u * ((1 << 19) - 1));
  EXPECT_GE(call.seconds(), least_seconds(network, Collective::broadcast, 0, 8));
}

TEST(SimulateCall, RefusesRanksThatWaitForEachOther) {
  const Network network = network_of_template("flat", 2);
  std::vector<Schedule> schedules;
  for (const int rank : {0, 1}) {
    Schedule& one = schedules.emplace_back();
    one.ranks = 2;
    one.rank = rank;
    one.blocks = 1;
    one.steps = {{StepOp::recv_copy, 0, 1 - rank, 0}, {StepOp::send_copy, 0, 1 - rank, 0}};
  }
  Routes routes(network);
  const CallToSimulate call{.key = {Collective::all_reduce, Algorithm::synthesized, 2, 0, {}},
                            .bytes = 8,
                            .schedules = &schedules};
  EXPECT_THROW(simulate_call(routes, call), Error);
}

// Times ran over to negative ones.
TEST(SimulateCall, RefusesWhatTakesTooLong) {
  const Network slow = network_of_template("flat:rate=1kbit", 4);
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree})
    EXPECT_THROW(simulated(slow, Collective::all_reduce, algorithm, size_t{1} << 40), Error);
  const Network ring = network_of_template("flat:latency=1000s", 8192);
  EXPECT_THROW(simulated(ring, Collective::all_reduce, Algorithm::ring, 8192 * 8), Error);
}

TEST(SimulateCall, RefusesWhatWouldNotFit) {
  const Network network = network_of_template("racks:64x64", 4096);
  EXPECT_THROW(simulated(network, Collective::broadcast, Algorithm::ring, size_t{1} << 40), Error);
}

}  // namespace
}  // namespace ropewalk

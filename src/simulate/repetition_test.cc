// Rounds that repeat are left out and added up. This holds the result against that of all of them,
// on all ranks.
#include "simulate/repetition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "schedule/verify.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

struct BothWays {
  SimulatedCall brief, all;
};

BothWays run_both_ways(const Network& network, Collective collective, Algorithm algorithm,
                       size_t bytes) {
  Routes routes(network);
  CallToSimulate call = call_for(request_on(network, collective, 0, bytes), algorithm);
  call.slice_bytes = 8192;  // several for a block, and a shorter last one
  BothWays both;
  both.brief = simulate_call(routes, call);
  call.event_by_event = true;
  both.all = simulate_call(routes, call);
  const std::string told = fmt::format("{} of {} bytes", describe(call.key), bytes);
  EXPECT_EQ(both.brief.ps, both.all.ps) << told;
  EXPECT_EQ(both.brief.added_ps, both.all.added_ps) << told;
  EXPECT_EQ(both.brief.cpu_ps, both.all.cpu_ps) << told;
  EXPECT_EQ(both.brief.messages, both.all.messages) << told;
  EXPECT_EQ(both.brief.links.front().busy_s, both.all.links.front().busy_s) << told;
  EXPECT_EQ(both.brief.links.front().bytes, both.all.links.front().bytes) << told;
  return both;
}

/// Whether less was run than once what a rank does, for each that was run.
bool was_shortened(const BothWays& both, int ranks) {
  const uint64_t each = both.all.events / static_cast<uint64_t>(ranks);
  return both.brief.events < each * static_cast<uint64_t>(both.brief.ranks_run) * 9 / 10;
}

// Within a host sums are added where they lie: there grants of the second half are looked at from
// the start, and all is run.
TEST(Repetition, RoundsThatWereLeftOutAreAddedUp) {
  using enum Collective;
  for (const auto& [words, ranks] :
       {std::pair("flat", 128), std::pair("flat:ranks=4:rate=25gbit", 128),
        std::pair("racks:32x4:uplink=4", 128), std::pair("racks:16x8:uplink=2:rate=1gbit", 128),
        std::pair("racks:30x2:ranks=2:uplink=3:latency=20us", 120)})
    for (const Collective collective : {all_reduce, reduce_scatter, all_gather})
      for (const size_t each : {size_t{1}, size_t{3000}, size_t{5000}, size_t{20000}}) {
        const BothWays both = run_both_ways(network_of_template(words, ranks), collective,
                                            Algorithm::ring, each * static_cast<size_t>(ranks));
        const bool adds_inside = both.all.added_ps > 0 && each > kSentEagerBytesMax &&
                                 std::string(words).find("ranks") != std::string::npos;
        EXPECT_EQ(was_shortened(both, ranks), !adds_inside)
            << name_of(collective) << " of " << each << " bytes each on " << words;
      }
}

// A slow CPU, copies and slow sums on top, in which other things set the pace.
TEST(Repetition, HoldsWhateverSetsThePace) {
  for (const int slow : {0, 1, 2, 3}) {
    Network network = network_of_template("racks:64x2:uplink=3", 128);
    if (slow == 1) network.add_s_per_byte = 1e-9;
    if (slow == 2) network.copy_s_per_byte = 0.5e-9;
    if (slow == 3) network.between.overhead_s = 20e-6;
    network.receive_s = 0.3e-6;
    for (const size_t each : {size_t{100}, size_t{30000}})
      EXPECT_TRUE(was_shortened(
          run_both_ways(network, Collective::all_reduce, Algorithm::ring, 128 * each), 128))
          << slow << " " << each;
  }
}

// As many as would take hundreds of seconds, and too much memory, one by one.
TEST(Repetition, ManyRanksOnLargeRacks) {
  const Network network = network_of_template("racks:64x64:uplink=4", 4096);
  Routes routes(network);
  const SimulatedCall call = simulate_call(
      routes, call_for(request_on(network, Collective::all_reduce, 0, 64 << 20), Algorithm::ring));
  EXPECT_EQ(call.ranks_run, 64);
  EXPECT_EQ(call.messages, uint64_t{4096} * 2 * 4095 * 1);
  EXPECT_LT(call.events, 3'000'000);
}

}  // namespace
}  // namespace ropewalk

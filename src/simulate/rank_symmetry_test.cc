// Ranks that behave alike are run once. This holds the result against that of all ranks, each with
// the schedule that it was built for. TEST_SIMULATED_RANKS=1024 tries more of them.
#include "simulate/rank_symmetry.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "schedule/verify.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

int most_ranks() {
  const char* text = getenv("TEST_SIMULATED_RANKS");
  return text == nullptr ? 32 : atoi(text);
}

/// Symmetric ones, and such as one slow host, or one more rank, make unlike any other.
std::vector<std::pair<std::string, Network>> networks_of(int ranks) {
  std::vector<std::pair<std::string, Network>> networks;
  const auto add = [&](const std::string& words) -> Network& {
    return networks.emplace_back(words, network_of_template(words, ranks)).second;
  };
  add("flat");
  add("flat").links[0].s_per_byte *= 4;
  add(fmt::format("flat:hosts=1"));
  if (ranks % 4 == 0) {
    add(fmt::format("flat:ranks=4"));
    add(fmt::format("racks:2x{}:uplink=3", ranks / 4));
    add(fmt::format("racks:{}x2:uplink=2", ranks / 2)).links[1].latency_s = 5e-6;
    Network& uneven = add(fmt::format("flat:hosts={}", ranks / 4));
    if (uneven.host_count() > 1) --uneven.hosts[0].ranks, ++uneven.hosts[1].ranks;
    add(fmt::format("torus:{}x4", ranks / 4));
    add(fmt::format("rail:hosts={}:gpus=4", ranks / 4));
  }
  if (ranks % 16 == 0) add("fat-tree:k=4:uplink=2");
  return networks;
}

/// Runs a call both ways; how many ranks the short way took.
int expect_equal(const Network& network, const std::string& words, Collective collective,
                 Algorithm algorithm, size_t bytes) {
  Routes routes(network);
  CallToSimulate call =
      call_for(request_on(network, collective, 1 % network.ranks(), bytes), algorithm);
  call.slice_bytes = 8192;     // several for a block, and a shorter last one
  if (network.ranks() > 64) {  // three, or there would be too many
    const size_t block = bytes / static_cast<size_t>(build_schedule(call.key, 0).blocks);
    call.slice_bytes = std::max<size_t>(8192, block * 4 / 9 / 64 * 64);
  }
  const SimulatedCall alike = simulate_call(routes, call);
  call.event_by_event = true;
  const SimulatedCall each = simulate_call(routes, call);
  EXPECT_EQ(alike.ps, each.ps) << words << " " << describe(call.key) << " " << bytes;
  EXPECT_EQ(alike.added_ps, each.added_ps) << words << " " << describe(call.key) << " " << bytes;
  EXPECT_EQ(alike.cpu_ps, each.cpu_ps) << words << " " << describe(call.key) << " " << bytes;
  EXPECT_EQ(alike.messages, each.messages) << words << " " << describe(call.key) << " " << bytes;
  return alike.ranks_run;
}

TEST(RankSymmetry, OneOfThoseThatBehaveAlikeTellsOfAll) {
  int saved = 0, tried = 0;
  for (int ranks : {2, 3, 8, 12, 16, 32, 64, 256, 1024}) {
    if (ranks > most_ranks()) break;
    for (const auto& [words, network] : networks_of(ranks)) {
      if (ranks > 64) fmt::print(stderr, "{} ranks: {}\n", ranks, words);  // which takes long
      for (int c = 0; c < kCollectives; ++c)
        for (const Algorithm algorithm : algorithms_for(static_cast<Collective>(c)))
          for (const size_t bytes : {size_t{8}, size_t{9000} * static_cast<size_t>(ranks)}) {
            ++tried;
            saved +=
                expect_equal(network, words, static_cast<Collective>(c), algorithm, bytes) < ranks;
          }
    }
  }
  EXPECT_GT(saved, tried / 5);
}

int ranks_run(const std::string& words, int ranks, Collective collective, Algorithm algorithm) {
  const Network network = network_of_template(words, ranks);
  Routes routes(network);
  return simulate_call(routes, call_for(request_on(network, collective, 0, 8), algorithm))
      .ranks_run;
}

TEST(RankSymmetry, IsFoundWhereItIs) {
  using enum Algorithm;
  EXPECT_EQ(ranks_run("flat", 4096, Collective::all_reduce, ring), 1);
  EXPECT_EQ(ranks_run("flat", 4096, Collective::all_reduce, recursive_doubling), 1);
  EXPECT_EQ(ranks_run("racks:16x16:uplink=4", 256, Collective::all_reduce, ring), 16);
  EXPECT_EQ(ranks_run("racks:16x16:uplink=4", 256, Collective::all_reduce, recursive_doubling), 16);
  EXPECT_EQ(ranks_run("racks:8x4:uplink=4", 64, Collective::all_reduce, two_level), 8);
  EXPECT_EQ(ranks_run("flat:ranks=8", 256, Collective::all_reduce, leaders), 8);
}

}  // namespace
}  // namespace ropewalk

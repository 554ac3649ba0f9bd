// How far the planner's choice is from the best that is simulated.
#include "simulate/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

int planned_ranks_max() {
  const char* text = getenv("TEST_PLANNED_RANKS");
  return text == nullptr ? 32 : atoi(text);
}

// As Links::eager_limit has it for TCP with a stream for each network.
TEST(Plan, OnSeveralNetworksOnlyShortMessagesTravelWhole) {
  const Network one = network_of_template("flat:hosts=4", 0);
  Network two = one;
  two.switches.push_back("second");
  for (const NetworkLink& link : one.links)
    two.links.push_back({{link.ends[0], two.node_count() - 1}, link.s_per_byte, 0, 50});
  const auto request = [](const Network& network, size_t bytes) {
    return request_on(network, Collective::all_reduce, 0, bytes);
  };
  EXPECT_EQ(call_for(request(one, 8), Algorithm::ring).eager_bytes_max, eager_bytes_max(false));
  EXPECT_EQ(call_for(request(two, 8), Algorithm::ring).eager_bytes_max,
            eager_bytes_max(false, true));
  // Announced and granted, they take longer: as simulated, and by closed forms.
  for (const size_t block : {size_t{4} << 10, size_t{8} << 10}) {
    const auto seconds = [&](const Network& network) {
      Routes routes(network);
      return simulate_call(routes, call_for(request(network, 4 * block), Algorithm::ring))
          .seconds();
    };
    const auto planned_us = [&](const Network& network) {
      PlanRequest forced = request(network, 4 * block);
      forced.cost.inter.s_per_byte = one.links[0].s_per_byte;
      forced.forced = Algorithm::ring;
      return choose(forced).predicted_us;
    };
    EXPECT_EQ(seconds(two) > seconds(one), block > eager_bytes_max(false, true)) << block;
    EXPECT_EQ(planned_us(two) > planned_us(one), block > eager_bytes_max(false, true)) << block;
  }
}

/// What algorithms take on a network, as bytes grow. What took far longer than the best with fewer
/// bytes is left out, unless it was chosen.
class Rivals {
 public:
  Rivals(const Network& network, Collective collective)
      : routes_(network), collective_(collective) {}

  PlanRequest request(size_t bytes) const {
    return request_on(routes_.network(), collective_, 0, bytes);
  }
  Algorithm chosen(size_t bytes) { return choose_on(routes_, request(bytes)); }

  /// How many times as long as the best `algorithm` takes; `told`: of which algorithms.
  double distance(Algorithm algorithm, size_t bytes, std::string& told) {
    const PlanRequest asked = request(bytes);
    std::map<Algorithm, double> seconds;
    for (const Candidate& candidate : choose(asked).candidates)
      if (candidate.eligible &&
          (candidate.algorithm == algorithm || !too_slow_.contains(candidate.algorithm)))
        seconds[candidate.algorithm] =
            simulate_call(routes_, call_for(asked, candidate.algorithm)).seconds();
    const auto best = std::ranges::min_element(
        seconds, {}, [](const auto& of_algorithm) { return of_algorithm.second; });
    for (const auto& [rival, taken_s] : seconds)
      if (taken_s > 3 * best->second) too_slow_.insert(rival);
    const double chosen_s = seconds.at(algorithm);
    told = fmt::format("{} of {} bytes by {} takes {:.3g} s, and {} {:.3g} s", name_of(collective_),
                       bytes, name_of(algorithm), chosen_s, name_of(best->first), best->second);
    return chosen_s / best->second;
  }

 private:
  Routes routes_;
  const Collective collective_;
  std::set<Algorithm> too_slow_;
};

struct NetworkOfRanks {
  const char* words;
  std::vector<int> ranks;
};

// With TEST_PLANNED_RANKS=64 for more ranks, and up to 4 GiB.
const bool is_long = planned_ranks_max() > 32;
const size_t bytes_max = is_long ? size_t{4} << 30 : size_t{16} << 20;

/// Calls `check(network, rivals, bytes)` for each that is asked for.
template <class Check>
void for_each_call(const std::vector<NetworkOfRanks>& networks, Collective collective, size_t step,
                   const Check& check) {
  for (const auto& [words, counts] : networks)
    for (const int ranks : counts) {
      if (ranks > planned_ranks_max()) continue;
      const Network network = network_of_template(words, ranks);
      Rivals rivals(network, collective);
      for (size_t bytes = 8; bytes <= bytes_max; bytes *= step)
        check(fmt::format("{} ranks on {}", ranks, words), rivals, bytes);
    }
}

void expect_near(Collective collective, const std::vector<NetworkOfRanks>& networks, size_t step) {
  for_each_call(networks, collective, step,
                [](const std::string& network, Rivals& rivals, size_t bytes) {
                  std::string told;
                  EXPECT_LE(rivals.distance(rivals.chosen(bytes), bytes, told), 1.05)
                      << network << ": " << told;
                });
}

/// What may be asked: fat-trees, in which messages meet, too.
const std::vector<NetworkOfRanks>& all_networks() {
  static const std::vector<NetworkOfRanks> networks = {
      {"flat", {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64, 96}},
      {"flat:ranks=4:rate=25gbit", {4, 8, 12, 16, 24, 32, 48, 64, 96}},
      {"racks:2x4:uplink=4", {8, 16, 32, 64}},
      {"racks:4x2:uplink=2:rate=10gbit", {8, 16, 32, 64}},
      {"racks:2x3:uplink=4", {6, 12, 24, 48, 96}},
      {"fat-tree:k=4:uplink=2", {16, 32, 64}},
      {"rail:gpus=4", {8, 16, 32, 64}},
      {"torus:4x4", {16, 32, 64}}};
  return networks;
}

TEST(PlannersChoice, IsNearTheBestSimulated) {
  expect_near(Collective::all_reduce, all_networks(), is_long ? 2 : 4);
}
TEST(PlannersChoice, IsNearTheBestReduceScatter) {
  expect_near(Collective::reduce_scatter, all_networks(), is_long ? 2 : 16);
}
TEST(PlannersChoice, IsNearTheBestAllGather) {
  expect_near(Collective::all_gather, all_networks(), is_long ? 2 : 16);
}
TEST(PlannersChoice, IsNearTheBestBroadcast) {
  expect_near(Collective::broadcast, all_networks(), is_long ? 2 : 16);
}
TEST(PlannersChoice, IsNearTheBestReduce) {
  expect_near(Collective::reduce, all_networks(), is_long ? 2 : 16);
}

// Large jobs have nothing else.
TEST(PlannersChoice, IsNearTheBestByClosedFormsAlone) {
  const auto check = [](double most) {
    return [most](const std::string& network, Rivals& rivals, size_t bytes) {
      std::string told;
      const Algorithm algorithm = choose(rivals.request(bytes)).algorithm;
      EXPECT_LE(rivals.distance(algorithm, bytes, told), most) << network << ": " << told;
    };
  };
  const size_t step = is_long ? 2 : 4;
  for_each_call({{"flat", {2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 24, 32, 48, 64, 96}},
                 {"flat:ranks=4:rate=25gbit", {4, 8, 12, 16, 24, 32, 48, 64, 96}},
                 {"flat:ranks=3", {12, 24, 48}},
                 {"racks:2x4:uplink=4", {8, 16, 32, 64}},
                 {"racks:4x2:uplink=2:rate=10gbit", {8, 16, 32, 64}},
                 {"racks:4x3:uplink=2:rate=10gbit", {12, 24, 48, 96}}},
                Collective::all_reduce, step, check(1.05));
  for_each_call({{"racks:2x3:uplink=4", {6, 12, 24, 48, 96}}, {"fat-tree:k=4:uplink=2", {16, 32}}},
                Collective::all_reduce, step, check(1.1));
}

// Nothing of direct is simulated there: a million messages.
TEST(PlannersChoice, TakesLittleTimeOfManyRanks) {
  const Network network = network_of_template("racks:32x32:uplink=4", 1024);
  Routes routes(network);
  const PlanRequest request = request_on(network, Collective::all_reduce, 0, 64 << 20);
  CallToSimulate call = call_for(request, Algorithm::direct);
  call.messages_max = kPlannedMessagesMax;
  EXPECT_THROW(simulate_call(routes, call), Error);
  EXPECT_EQ(choose_on(routes, request), choose(request).algorithm);
  const Network large = network_of_template("flat", 65536);
  Routes large_routes(large);
  const PlanRequest asked = request_on(large, Collective::all_reduce, 0, 64 << 20);
  EXPECT_EQ(choose_on(large_routes, asked), choose(asked).algorithm);
}

/// How many times as long as the fastest of `rivals` what is planned takes, by closed forms.
double distance_by_forms(const char* words, size_t bytes, const std::vector<Algorithm>& rivals) {
  const Network network = network_of_template(words, 0);
  Routes routes(network);
  const PlanRequest request = request_on(network, Collective::all_reduce, 0, bytes);
  const auto seconds = [&](Algorithm algorithm) {
    return simulate_call(routes, call_for(request, algorithm)).seconds();
  };
  const Algorithm chosen = choose(request).algorithm;
  double least = seconds(chosen);
  const double taken = least;
  for (const Algorithm algorithm : rivals) least = std::min(least, seconds(algorithm));
  return taken / least;
}

// A stream goes through one adapter, not through all of its host.
TEST(PlannersChoice, PricesAStreamAtOneAdapter) {
  using enum Algorithm;
  const PlanRequest rail =
      request_on(network_of_template("rail:hosts=4:gpus=4", 0), Collective::all_reduce, 0, 1 << 20);
  EXPECT_EQ(rail.cost.adapters, 4);
  EXPECT_DOUBLE_EQ(rail.cost.inter.s_per_byte, 80e-12);
  // Ranks without an adapter of their own share those that there are.
  const PlanRequest half = request_on(network_of_template("rail:hosts=4:gpus=4:ranks=2", 0),
                                      Collective::all_reduce, 0, 1 << 20);
  EXPECT_EQ(half.cost.adapters, 2);
  for (const size_t bytes : {size_t{8} << 20, size_t{256} << 20}) {
    EXPECT_LE(distance_by_forms("rail:hosts=8:gpus=8", bytes,
                                {two_level, ring, tree, halving_doubling, recursive_doubling}),
              1.1)
        << bytes;
    EXPECT_LE(distance_by_forms("rail:hosts=64:gpus=8", bytes, {two_level, recursive_doubling}),
              1.1)
        << bytes;
  }
  EXPECT_LE(distance_by_forms("rail:hosts=512:gpus=8", 256 << 20, {two_level, recursive_doubling}),
            1.1);
}

/// Hosts of `per_host` ranks, the last one of what is left, that cost what memory and TCP do.
Network ordinary_network(int ranks, int per_host) {
  Network network = network_of_template("flat", (ranks + per_host - 1) / per_host);
  for (NetworkHost& host : network.hosts) host.ranks = per_host;
  network.hosts.back().ranks -= network.ranks() - ranks;
  network.within = {.latency_s = 150e-9, .overhead_s = 20e-9, .s_per_byte = 65e-12};
  network.between = {.latency_s = 8e-6, .overhead_s = 2e-6, .s_per_byte = 0};
  for (NetworkLink& link : network.links) link.s_per_byte = 230e-12;
  return network;
}

/// The planner's request where no memory is mapped: the owner executor is not simulated.
PlanRequest unmapped_request(const Network& network, Collective collective, size_t bytes) {
  PlanRequest request = request_on(network, collective, 0, bytes);
  request.mapped = false;
  return request;
}

// The closed forms are coarser than the simulator (nothing hides the adding, ports are shared
// evenly, incast on top), but must not be far off for what they choose.
TEST(PlannersChoice, TakesAboutWhatThePlannerSays) {
  for (const int per_host : {1, 4}) {
    const Network network = ordinary_network(16, per_host);
    Routes routes(network);
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
          Collective::broadcast, Collective::reduce})
      for (const size_t bytes : {8u, 64u << 10, 1u << 20, 16u << 20}) {
        const PlanRequest request = unmapped_request(network, collective, bytes);
        const PlanDecision decision = choose(request);
        const double simulated =
            1e6 * simulate_call(routes, call_for(request, decision.algorithm)).seconds();
        const std::string call = fmt::format("{} {} of {} bytes", name_of(collective),
                                             name_of(decision.algorithm), bytes);
        EXPECT_GT(decision.predicted_us, 0.4 * simulated) << call;
        EXPECT_LT(decision.predicted_us, 4 * simulated) << call;
      }
  }
}

TEST(PlannersChoice, IsNearTheBestOnFewHosts) {
  for (const int ranks : {2, 3, 4, 9, 16})
    for (const int per_host : {1, 4}) {
      const Network network = ordinary_network(ranks, per_host);
      Routes routes(network);
      for (const size_t bytes : {8u, 64u << 10, 1u << 20, 16u << 20}) {
        const PlanRequest request = unmapped_request(network, Collective::all_reduce, bytes);
        const Algorithm chosen = choose(request).algorithm;
        const double mine = simulate_call(routes, call_for(request, chosen)).seconds();
        const SimulatedAlgorithm best = simulate_algorithms(routes, request).front();
        EXPECT_LE(mine, 1.4 * best.call.seconds())
            << ranks << " ranks, " << per_host << " a host, " << bytes
            << " bytes: " << name_of(chosen) << ", best " << name_of(best.algorithm);
      }
    }
}

// Where all ranks of a real network send to all, they collide; on a described one nothing does.
TEST(PlannersChoice, CountsNoCollisionsOnDescribedNetworks) {
  PlanRequest request =
      request_on(network_of_template("flat", 128), Collective::all_reduce, 0, 256 << 10);
  request.cost.inter = {.latency_s = 2e-6, .overhead_s = 500e-9, .s_per_byte = 80e-12};
  EXPECT_EQ(choose(request).algorithm, Algorithm::direct);
  request.described = false;
  EXPECT_EQ(choose(request).algorithm, Algorithm::halving_doubling);
}

TEST(Plan, OneSwitchWithHostsThatAreAlikeIsUniform) {
  for (const char* words : {"flat:hosts=4", "flat:hosts=4:ranks=3", "flat:hosts=1:ranks=4"})
    EXPECT_TRUE(is_uniform(network_of_template(words, 0))) << words;
  // All first adapters of a rail network are at one switch.
  for (const char* words :
       {"rail:hosts=4:gpus=4:uplink=8", "fat-tree:k=4", "racks:2x4", "torus:3x3"})
    EXPECT_FALSE(is_uniform(network_of_template(words, 0))) << words;
  Network slow = network_of_template("flat:hosts=4", 0);
  slow.links[2].s_per_byte *= 2;
  EXPECT_FALSE(is_uniform(slow));
}

TEST(SimulateAlgorithms, TellsOfEachBeforeItBegins) {
  const Network network = network_of_template("flat", 8);
  Routes routes(network);
  const PlanRequest request = request_on(network, Collective::all_reduce, 0, 1 << 20);
  std::set<Algorithm> begun;
  const auto all = simulate_algorithms(routes, request, {},
                                       [&](Algorithm algorithm) { begun.insert(algorithm); });
  EXPECT_EQ(begun.size(), all.size());
  EXPECT_EQ(all.front().algorithm, choose_on(routes, request));
  for (const SimulatedAlgorithm& one : all) EXPECT_TRUE(begun.contains(one.algorithm));
}

}  // namespace
}  // namespace ropewalk

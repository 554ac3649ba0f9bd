// How far the planner's choice is from the best that is simulated.
#include "simulate/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace ropewalk {
namespace {

int planned_ranks_max() {
  const char* text = getenv("TEST_PLANNED_RANKS");
  return text == nullptr ? 32 : atoi(text);
}

/// What algorithms take on a network, as bytes grow. What took far longer than the best with fewer
/// bytes is left out, unless it was chosen.
class Rivals {
 public:
  explicit Rivals(const Network& network) : routes_(network) {}

  /// How many times as long as the best the planner's choice takes; `told`: of which algorithms.
  double distance(size_t bytes, std::string& told) {
    const PlanRequest request = request_on(routes_.network(), Collective::all_reduce, 0, bytes);
    const PlanDecision decision = choose(request);
    std::map<Algorithm, double> seconds;
    for (const Candidate& candidate : decision.candidates)
      if (candidate.eligible &&
          (candidate.algorithm == decision.algorithm || !too_slow_.contains(candidate.algorithm)))
        seconds[candidate.algorithm] =
            simulate_call(routes_, call_for(request, candidate.algorithm)).seconds();
    const auto best = std::ranges::min_element(
        seconds, {}, [](const auto& of_algorithm) { return of_algorithm.second; });
    for (const auto& [algorithm, taken_s] : seconds)
      if (taken_s > 3 * best->second) too_slow_.insert(algorithm);
    const double chosen_s = seconds.at(decision.algorithm);
    told =
        fmt::format("{} of {} bytes takes {:.3g} s, and {} {:.3g} s", name_of(decision.algorithm),
                    bytes, chosen_s, name_of(best->first), best->second);
    return chosen_s / best->second;
  }

 private:
  Routes routes_;
  std::set<Algorithm> too_slow_;
};

// With TEST_PLANNED_RANKS=64 for more ranks, and up to 4 GiB.
TEST(PlannersChoice, IsNearTheBestSimulated) {
  const bool is_long = planned_ranks_max() > 32;
  const std::pair<const char*, int> networks[] = {{"flat", 2},
                                                  {"flat:ranks=4:rate=25gbit", 4},
                                                  {"racks:2x4:uplink=4", 8},
                                                  {"racks:4x2:uplink=2:rate=10gbit", 8}};
  for (const auto& [words, least] : networks)
    for (int ranks = least; ranks <= planned_ranks_max(); ranks *= 2) {
      const Network network = network_of_template(words, ranks);
      Rivals rivals(network);
      const size_t most = is_long ? size_t{4} << 30 : size_t{16} << 20;
      for (size_t bytes = 8; bytes <= most; bytes *= is_long ? 2 : 4) {
        std::string told;
        EXPECT_LE(rivals.distance(bytes, told), 1.05)
            << ranks << " ranks on " << words << ": " << told;
      }
    }
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

}  // namespace
}  // namespace ropewalk

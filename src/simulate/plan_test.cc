// How far the planner's choice is from the best that is simulated.
#include "simulate/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ropewalk {
namespace {

/// Times as long as the best; 1: it is the best.
double distance(Routes& routes, size_t bytes, std::string& told) {
  const PlanRequest request = request_on(routes.network(), Collective::all_reduce, 0, bytes);
  const Algorithm chosen = choose(request).algorithm;
  const std::vector<SimulatedAlgorithm> all = simulate_algorithms(routes, request);
  const auto found = std::ranges::find(all, chosen, &SimulatedAlgorithm::algorithm);
  EXPECT_TRUE(found->why_not.empty()) << found->why_not;
  told = fmt::format("{} of {} bytes, where {} is the best", name_of(chosen), bytes,
                     name_of(all.front().algorithm));
  return found->call.seconds() / all.front().call.seconds();
}

// The planner's closed forms know less than the simulator: most choices are good, some are not.
TEST(PlannersChoice, IsMostlyNearTheBestSimulated) {
  std::vector<double> distances;
  std::string worst;
  for (const char* words :
       {"flat", "flat:ranks=4:rate=25gbit", "racks:2x4:uplink=4", "racks:4x2:uplink=2:rate=10gbit"})
    for (const int ranks : {8, 32}) {
      const Network network = network_of_template(words, ranks);
      Routes routes(network);
      for (const size_t bytes : {8u, 1u << 12, 1u << 18, 1u << 24}) {
        std::string told;
        distances.push_back(distance(routes, bytes, told));
        if (distances.back() == std::ranges::max(distances))
          worst = fmt::format("{:.2f} times the best: {} ranks on {}, {}", distances.back(), ranks,
                              words, told);
      }
    }
  std::ranges::sort(distances);
  const auto near = std::ranges::upper_bound(distances, 1.05) - distances.begin();
  fmt::print("{} of {} choices are within 5 %; the worst takes {}\n", near, distances.size(),
             worst);
  EXPECT_LT(distances[distances.size() / 2], 1.3);
  EXPECT_LT(distances.back(), 10) << worst;
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
        EXPECT_LE(mine, 2.1 * best.call.seconds())
            << ranks << " ranks, " << per_host << " a host, " << bytes
            << " bytes: " << name_of(chosen) << ", best " << name_of(best.algorithm);
      }
    }
}

}  // namespace
}  // namespace ropewalk

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
    for (const int ranks : {8, 32, 128}) {
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

}  // namespace
}  // namespace ropewalk

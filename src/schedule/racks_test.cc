#include "schedule/algorithm.h"
#include "schedule/test_support.h"

namespace ropewalk {
namespace {

std::string text_for(const std::vector<int>& racks, int rank) {
  const int ranks = static_cast<int>(racks.size());
  return text_of(build_schedule({Collective::all_reduce, Algorithm::racks, ranks, 0, racks}, rank));
}

TEST(Racks, AreTwoLevelsOfRacks) {
  const std::vector<int> racks = {0, 0, 0, 1};
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(
        text_for(racks, rank),
        text_of(build_schedule({Collective::all_reduce, Algorithm::two_level, 4, 0, racks}, rank)));
}

// 2 (g-1)/g of the vector, each way.
TEST(Racks, WhatPassesASlowLink) {
  for (const std::vector<int>& racks :
       {std::vector{0, 0, 0, 0, 1, 1, 1, 1}, std::vector{0, 0, 0, 1, 0, 0, 0, 0},
        std::vector{0, 0, 1, 1, 1, 2, 2, 2, 2}}) {
    const int ranks = static_cast<int>(racks.size());
    const Hosts groups = hosts_of(racks, ranks);
    std::vector<double> crossing(static_cast<size_t>(groups.count()));
    int blocks = 0;
    for (const Schedule& schedule :
         build_all({Collective::all_reduce, Algorithm::racks, ranks, 0, racks})) {
      blocks = schedule.blocks;
      const auto own = static_cast<size_t>(racks[static_cast<size_t>(schedule.rank)]);
      for (const Step& step : schedule.steps)
        crossing[own] += is_send(step.op) && racks[static_cast<size_t>(step.peer)] !=
                                                 racks[static_cast<size_t>(schedule.rank)];
    }
    for (const double sent : crossing)
      EXPECT_DOUBLE_EQ(sent / blocks, 2.0 * (groups.count() - 1) / groups.count());
  }
}

TEST(Racks, ArePassedOverWhereThereIsOne) {
  EXPECT_NE(racks_algorithm().passed_over(hosts_of({0, 0, 0}, 3)), "");
  EXPECT_EQ(racks_algorithm().passed_over(hosts_of({0, 0, 1}, 3)), "");
}

}  // namespace
}  // namespace ropewalk

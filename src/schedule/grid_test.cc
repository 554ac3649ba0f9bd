#include "schedule/algorithm.h"
#include "schedule/test_support.h"

namespace ropewalk {
namespace {

std::string steps_of(const std::vector<int>& rows, int rank) {
  const int ranks = static_cast<int>(rows.size());
  return text_of(build_schedule({Collective::all_reduce, Algorithm::grid, ranks, 0, rows}, rank));
}

TEST(Grid, OneRowIsDirect) {
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(steps_of({0, 0, 0, 0}, rank),
              text_of(build_schedule({Collective::all_reduce, Algorithm::direct, 4, 0, {}}, rank)));
}

// Ranks 0 and 1 are a row, 2 and 3 the other; 0 and 2 are a column, which owns blocks 0 and 1.
TEST(Grid, TwoRowsOfTwo) {
  EXPECT_EQ(steps_of({0, 0, 1, 1}, 0),
            "+>1:3 +>1:2 +<1:1 +<1:0 "   // to the owners in the row
            "+>2:1 +<2:0 "               // and in the column,
            "=>2:0 =<2:1 "               // where the sum is handed out,
            "=>1:0 =<1:2 =>1:1 =<1:3");  // and then in the row
}

TEST(Grid, SendsWhatDirectSendsInFourRounds) {
  std::vector<int> rows;
  for (int rank = 0; rank < 64; ++rank) rows.push_back(rank / 8);
  const ScheduleKey key{Collective::all_reduce, Algorithm::grid, 64, 0, rows};
  EXPECT_EQ(bound_of(key).rounds, 4);
  EXPECT_DOUBLE_EQ(bound_of(key).sent, 2 * 63.0 / 64);
  expect_correct(key);
}

TEST(Grid, OfOneRowIsPassedOver) {
  EXPECT_NE(grid_algorithm().passed_over(hosts_of({0, 0, 0}, 3)), "");
  EXPECT_EQ(grid_algorithm().passed_over(hosts_of({0, 0, 1}, 3)), "");
}

}  // namespace
}  // namespace ropewalk

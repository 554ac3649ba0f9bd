#include <set>

#include "schedule/builders.h"
#include "schedule/test_support.h"

namespace ropewalk {
namespace {

ScheduleKey key_of(int ranks) {
  return {Collective::all_to_all, Algorithm::bruck, ranks, 0, {}};
}

/// Of a rank, whichever way the messages go.
size_t partners_of(const Schedule& schedule) {
  std::set<int> peers;
  for (const Step& step : schedule.steps) peers.insert(step.peer);
  return peers.size();
}

// Distance 3 is digits 1 and 1: what rank 0 has for rank 3 goes by way of rank 1.
TEST(Bruck, OfFourRanksTheFurthestPartTakesTwoMessages) {
  EXPECT_EQ(text_of(build_schedule(key_of(4), 0)),
            "=>1:3 =<3:11 =>1:1 =<3:7 "
            "=>2:2 =<2:6 =>2:11 =<2:5");
}

TEST(Bruck, IsCorrect) {
  for (int ranks : {1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 26, 40}) expect_correct(key_of(ranks));
}

// Two digits of 51 would be 200 partners, and a rank more too many.
TEST(Bruck, TakesAThirdDigitWhereTwoAreTooManyPartners) {
  EXPECT_EQ(bound_of(key_of(2601)).rounds, 2);
  EXPECT_EQ(bound_of(key_of(2602)).rounds, 3);
  const ScheduleKey key = key_of(2602);
  EXPECT_LE(partners_of(build_schedule(key, 7)), 78u);  // of radix 14
}

TEST(Bruck, IsCorrectWithMoreDigits) {
  for (const auto& [ranks, partners_max] : {std::pair{27, 12}, {30, 18}, {26, 12}, {17, 8}}) {
    const ScheduleKey key = key_of(ranks);
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < ranks; ++rank)
      schedules.push_back(bruck_schedule(key, rank, partners_max));
    for (const int credits : {0, 1, kInListOrder}) {
      // Rounds and messages are more than those of two digits.
      const VerifyReport report =
          verify(key, schedules, credits, {.bound = {10, 5}, .needs_equal_parts = true});
      EXPECT_TRUE(report.ok()) << ranks << ", credits " << credits << "\n" << text_of(report);
      EXPECT_GT(report.rounds, 2);
    }
  }
}

TEST(Bruck, HasFewPartnersWhereRanksAreMany) {
  for (int ranks : {201, 256, 1000, 1024}) {
    const size_t partners = partners_of(build_schedule(key_of(ranks), 3));
    const Hosts hosts = hosts_of({}, ranks);
    EXPECT_LE(partners,
              static_cast<size_t>(
                  descriptor_of(Algorithm::bruck).partners(Collective::all_to_all, hosts)));
    EXPECT_LE(partners, static_cast<size_t>(kPartnersMax));
  }
}

}  // namespace
}  // namespace ropewalk

#include "policies/round_decider.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

using Contributors = std::vector<uint8_t>;

TEST(RoundDecider, WaitsForAllAtFirst) {
  RoundDecider decider(3);
  EXPECT_FALSE(decider.decide(0));
  EXPECT_EQ(decider.deadline_ns(), RoundDecider::kNever_ns);
  for (const int rank : {2, 0}) {
    decider.note_ready(rank, 100);
    EXPECT_FALSE(decider.decide(99));
  }
  decider.note_ready(1, 100);
  EXPECT_EQ(decider.decide(50), (Contributors{1, 1, 1}));
  EXPECT_FALSE(decider.decide(1000));
}

TEST(RoundDecider, IsAsPatientAsTheLeastPatient) {
  RoundDecider decider(3);
  decider.note_ready(0, 100);
  decider.note_ready(1, 50);
  EXPECT_EQ(decider.deadline_ns(), 50);
  EXPECT_FALSE(decider.decide(49));
  EXPECT_EQ(decider.decide(50), (Contributors{1, 1, 0}));
  EXPECT_EQ(decider.deadline_ns(), RoundDecider::kNever_ns);
}

TEST(RoundDecider, WaitsForAStragglerOnce) {
  RoundDecider decider(3);
  decider.note_ready(0, 100);
  decider.note_ready(1, 100);
  EXPECT_EQ(decider.decide(100), (Contributors{1, 1, 0}));
  for (int round = 0; round < 3; ++round) {
    decider.note_ready(1, 1000);
    EXPECT_FALSE(decider.decide(200));
    decider.note_ready(0, 1000);
    EXPECT_EQ(decider.decide(200), (Contributors{1, 1, 0}));
  }
  decider.note_ready(2, 1000);
  decider.note_ready(0, 1000);
  EXPECT_FALSE(decider.decide(300));
  decider.note_ready(1, 1000);
  EXPECT_EQ(decider.decide(300), (Contributors{1, 1, 1}));  // it has come again
  decider.note_ready(0, 1000);
  decider.note_ready(1, 1000);
  EXPECT_FALSE(decider.decide(400));
}

TEST(RoundDecider, WaitsForNobodyWhoHasFinished) {
  RoundDecider decider(2);
  decider.note_finished(1);
  EXPECT_FALSE(decider.all_have_finished());
  decider.note_ready(0, 1000);
  EXPECT_EQ(decider.decide(0), (Contributors{1, 0}));
  decider.note_finished(0);
  EXPECT_TRUE(decider.all_have_finished());
  EXPECT_FALSE(decider.decide(2000));
}

}  // namespace
}  // namespace ropewalk

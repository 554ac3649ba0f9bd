#include "bootstrap/epoch_monitor.h"

#include <gtest/gtest.h>

#include "bootstrap/job_monitor.h"

namespace ropewalk::bootstrap {
namespace {

Failure death_said_by(int rank, int peer) {
  return {ErrorCode::peer_lost, "control", "it died", "", rank, peer, {peer}};
}

TEST(EpochMonitor, NumbersRanksAsItsEpochDoes) {
  JobMonitor whole(0, 5);
  whole.report(death_said_by(0, 1));
  const auto next = whole.renew({0, 2, 4});
  EXPECT_EQ(next->failure(), nullptr);
  EXPECT_EQ(whole.rank_in_epoch(4), 2);
  EXPECT_EQ(next->rank_in_epoch(4), 2);
  EXPECT_EQ(JobMonitor(whole, 1, {0, 4}).rank_in_epoch(4), 2) << "of a part";
  next->report(death_said_by(0, 2));
  ASSERT_NE(whole.failure(), nullptr);
  EXPECT_EQ(whole.failure()->peer, 4);
  ASSERT_NE(next->failure(), nullptr);
  EXPECT_EQ(next->failure()->peer, 2);
  EXPECT_EQ(next->failure()->peers, std::vector{2});
}

TEST(EpochMonitor, OfAnEpochThatIsOverSaysNothing) {
  JobMonitor whole(0, 3);
  const auto first = whole.of_epoch();
  whole.report(death_said_by(0, 1));
  ASSERT_NE(first->failure(), nullptr);
  const auto next = whole.renew({0, 2});
  first->report(death_said_by(0, 2));
  first->report_silent(death_said_by(0, 2));
  EXPECT_EQ(first->failure()->peer, 1);
  EXPECT_EQ(whole.failure(), nullptr);
  EXPECT_FALSE(whole.silence());
  EXPECT_EQ(next->failure(), nullptr);
}

TEST(EpochMonitor, WhoIsInItNoMoreHasLeft) {
  JobMonitor whole(0, 4);
  whole.mark_left(1, {7, 8, "barrier"});
  whole.report(death_said_by(0, 3));
  const auto next = whole.renew({0, 2});
  EXPECT_TRUE(whole.has_left(3));
  EXPECT_FALSE(next->has_left(1));
  EXPECT_TRUE(whole.mark_left(2, {1, 2, "barrier"}));
  EXPECT_EQ(whole.failure(), nullptr) << "its calls are others than those of the epoch before";
  EXPECT_TRUE(next->has_left(1));
  EXPECT_EQ(next->calls_of(1)->count, 1u);
}

TEST(EpochMonitor, TellsWhatItsRanksWaitFor) {
  JobMonitor whole(4, 5);
  whole.report(death_said_by(4, 1));
  const auto next = whole.renew({0, 2, 4});
  Wait wait{.sequence = 3, .peers = {1}, .peer_count = 1};
  next->note_waits(std::span(&wait, 1));
  ASSERT_EQ(whole.answer().waits.size(), 1u);
  EXPECT_EQ(whole.answer().waits[0].peers[0], 2);
  whole.note_answer(2, {0, 9, {{.peers = {4}, .peer_count = 1}}});
  const auto waits = next->waits();
  ASSERT_EQ(waits.size(), 3u);
  EXPECT_EQ(waits[1].calls, 9u);
  EXPECT_EQ(waits[1].waits[0].peers[0], 2);
}

}  // namespace
}  // namespace ropewalk::bootstrap

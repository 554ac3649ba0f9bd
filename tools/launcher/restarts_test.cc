// Where lost ranks are started again, without any process.
#include "tools/launcher/restarts.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace ropewalk::tools {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

/// Two ranks on each of a and b, c has two spare slots; all restarts that one wants.
class RestartsTest : public testing::Test {
 protected:
  RestartsTest() {
    for (const char* name : {"a", "b", "c"}) {
      const bool is_spare = name[0] == 'c';
      hosts_.push_back({.name = name, .ranks = is_spare ? 0 : 2, .slots = 2});
      if (is_spare) continue;
      hosts_.back().ready = true;
      hosts_.back().closed = false;
      for (int slot = 0; slot < 2; ++slot) ranks_.add(static_cast<int>(hosts_.size()) - 1, slot);
    }
    ranks_.note_started();
  }

  void lose(std::vector<int> lost) {
    for (const int rank : lost) ranks_[rank].running = false;
    restarts_.want(lost, now_);
  }
  void lose_host(int number) {
    Host& host = hosts_[static_cast<size_t>(number)];
    host.closed = true;
    host.ready = false;
    restarts_.note_lost(host, now_);
    lose(ranks_.running(number));
  }
  void dial(Host* host, bool is_ready) {
    host->closed = false;
    host->ready = is_ready;
  }
  /// "1.1 on c0": the slots where those that wait are started now.
  std::vector<std::string> started() {
    std::vector<std::string> told;
    while (const auto place = restarts_.next()) {
      const int number = ranks_.add_in_place_of(place->lost, place->host, place->slot);
      told.push_back(ranks_[number].label + " on " + hosts_[static_cast<size_t>(place->host)].name +
                     std::to_string(place->slot));
    }
    return told;
  }

  std::vector<Host> hosts_;
  Ranks ranks_{Elastic{.ranks_min = 1, .restarts = 100}};
  Restarts restarts_{hosts_, ranks_};
  Host::Time now_{seconds(1000)};
};

TEST_F(RestartsTest, ARankReturnsToItsSlotWhereTheHostIsThere) {
  lose({1, 2});
  EXPECT_THAT(started(), ElementsAre("1.1 on a1", "2.1 on b0"));
  EXPECT_EQ(restarts_.host_to_dial(now_), nullptr);
}

TEST_F(RestartsTest, ThoseOfALostHostGoToASpareHostAndTheFormerIsNotDialled) {
  lose_host(0);
  EXPECT_EQ(restarts_.room().slots, 2);
  EXPECT_THAT(started(), IsEmpty());
  EXPECT_FALSE(restarts_.become_stuck());
  Host* spare = restarts_.host_to_dial(now_);
  ASSERT_EQ(spare, &hosts_[2]);
  dial(spare, false);
  now_ += seconds(100);
  EXPECT_EQ(restarts_.host_to_dial(now_), nullptr);
  EXPECT_FALSE(restarts_.next_dial());
  spare->ready = true;
  EXPECT_THAT(started(), ElementsAre("0.1 on c0", "1.1 on c1"));
  EXPECT_FALSE(restarts_.next_dial());
}

TEST_F(RestartsTest, ALostHostIsDialledAfterPausesThatGrowAndNotForEver) {
  hosts_.pop_back();
  lose_host(1);
  EXPECT_EQ(restarts_.room().slots, 0);
  EXPECT_TRUE(restarts_.become_stuck());
  EXPECT_FALSE(restarts_.become_stuck());
  std::vector<Host::Time::duration> pauses;
  while (const auto next = restarts_.next_dial()) {
    EXPECT_EQ(restarts_.host_to_dial(*next - seconds(1)), nullptr);
    ASSERT_EQ(restarts_.host_to_dial(*next), &hosts_[1]);
    pauses.push_back(*next - now_);
    now_ = *next;
    restarts_.note_lost(hosts_[1], now_);
  }
  EXPECT_EQ(pauses.size(), static_cast<size_t>(kDialsMax));
  EXPECT_EQ(pauses.front(), kDialPauseMin);
  EXPECT_EQ(pauses.back(), kDialPauseMax);
  EXPECT_TRUE(std::ranges::is_sorted(pauses));

  lose({0});  // another loss: the host may be there by now
  EXPECT_THAT(started(), ElementsAre("0.1 on a0"));
  EXPECT_EQ(restarts_.host_to_dial(now_ + kDialPauseMin), &hosts_[1]);
}

TEST_F(RestartsTest, AHostThatIsBackGetsItsOwnRanksFirst) {
  lose_host(0);
  lose_host(1);
  dial(&hosts_[1], true);
  EXPECT_THAT(started(), ElementsAre("2.1 on b0", "3.1 on b1"));
  dial(&hosts_[2], true);
  EXPECT_THAT(started(), ElementsAre("0.1 on c0", "1.1 on c1"));
}

TEST_F(RestartsTest, ASpareHostThatCannotBeDialledLeavesTheTurnToOthers) {
  hosts_.push_back({.name = "d", .slots = 1});
  lose_host(1);
  Host* first = restarts_.host_to_dial(now_);
  ASSERT_EQ(first, &hosts_[2]);
  restarts_.note_lost(*first, now_);
  EXPECT_EQ(restarts_.room().slots, 1);
  ASSERT_EQ(restarts_.host_to_dial(now_), &hosts_[3]);
  dial(&hosts_[3], true);
  EXPECT_THAT(started(), ElementsAre("2.1 on d0"));
  EXPECT_TRUE(restarts_.become_stuck());
  EXPECT_EQ(restarts_.waiting(), std::vector<int>{3});
}

TEST_F(RestartsTest, AHostWhereARankCouldNotBeStartedGetsNoOther) {
  hosts_[1].is_unfit = true;
  lose({2});
  EXPECT_THAT(started(), IsEmpty());
  EXPECT_EQ(restarts_.host_to_dial(now_), &hosts_[2]);
  hosts_[0].is_unfit = hosts_[2].is_unfit = true;
  EXPECT_FALSE(restarts_.room().is_any);
  EXPECT_EQ(restarts_.host_to_dial(now_ + seconds(100)), nullptr);
}

}  // namespace
}  // namespace ropewalk::tools

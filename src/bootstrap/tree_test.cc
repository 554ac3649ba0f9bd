#include "bootstrap/tree.h"

#include <gtest/gtest.h>

#include <utility>

#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

constexpr std::chrono::seconds kTimeout{2}, kLinkTimeout{15};

/// Rank 0 of two, in virtual time, and the socket of a neighbour that never says anything.
class BesideASilentNeighbour : public ::testing::Test {
 protected:
  BesideASilentNeighbour() {
    auto [dialed, accepted] = connect_over_loopback();
    neighbour_ = std::move(dialed);
    tree_.add(1, ConnectedSocket{std::move(accepted), {}}, now_ns_);
  }

  /// One round of the control thread, which comes so long after the round before.
  void advance_after(int64_t after_ns) {
    now_ns_ += after_ns;
    PollSet set;
    tree_.prepare(set);
    set.wake_at(now_ns_);  // does not sleep
    set.wait(now_ns_);
    tree_.advance(set, now_ns_);
  }

  static SigningKeys keys() {
    start_cryptography();
    return signing_keys(Key{});
  }

  int64_t now_ns_ = 1'000'000'000;
  JobMonitor monitor_{0, 2};
  PeerTable table_{2};
  Statements statements_{0, keys(), monitor_, table_};
  DeathWatch deaths_{2};
  Tree tree_{0, 2, kTimeout, kLinkTimeout, monitor_, statements_, table_, deaths_};
  UniqueFd neighbour_;
};

// Once each round that came late began the neighbour's silence anew, so that on a busy host nobody
// gave a stopped rank up.
TEST_F(BesideASilentNeighbour, GivesItUpThoughItsOwnRoundsComeLate) {
  const int64_t begin_ns = now_ns_;
  while (monitor_.failure() == nullptr && now_ns_ - begin_ns < 30'000 * kMillisecond_ns)
    advance_after(250 * kMillisecond_ns);
  ASSERT_NE(monitor_.failure(), nullptr);
  EXPECT_EQ(monitor_.failure()->peer, 1);
  // 100 ms of each round count.
  EXPECT_LT(now_ns_ - begin_ns, 4000 * kMillisecond_ns);
}

TEST_F(BesideASilentNeighbour, BlamesItForNothingWhileItIsStoppedItself) {
  for (int i = 0; i < 4; ++i) {
    advance_after(100 * kMillisecond_ns);
    advance_after(20'000 * kMillisecond_ns);
  }
  EXPECT_EQ(monitor_.failure(), nullptr);
}

}  // namespace
}  // namespace ropewalk::bootstrap

// Sleeping until there is news.
#include <poll.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/conformance/transport_suite.h"

namespace ropewalk::conformance {
namespace {

using Kind = Completion::Kind;

bool readable(int fd, int timeout_ms) {
  pollfd p{fd, POLLIN, 0};
  return fd >= 0 && ::poll(&p, 1, timeout_ms) > 0;
}

TEST_P(TransportSuite, ArmTellsQuietFromNews) {
  start(2);
  EXPECT_EQ(at(1).capabilities().event_fd >= 0, GetParam().one_thread_per_rank);
  // Quiet: after a few polls at most, it may sleep and is not woken.
  bool may_sleep = false;
  for (int i = 0; i < 10 && !may_sleep; ++i) {
    linger();
    may_sleep = at(1).arm() && !readable(at(1).capabilities().event_fd, 0);
  }
  EXPECT_TRUE(may_sleep);
  // News: arm says so, or the descriptor does; before and after the sleep begins.
  for (uint32_t round = 0; round < 20; ++round) {
    ASSERT_NE(put(0, 1, nullptr, 0, 0, {}, 0, round), Posted::lost);
    std::array<Completion, 8> sink;
    const auto deadline = SteadyClock::now() + kTimeout;
    while (at(1).arm() && !readable(at(1).capabilities().event_fd, 0)) {
      ASSERT_LT(SteadyClock::now(), deadline) << "the news is not seen";
      group_->pass_time();
      at(0).poll(sink);
    }
    ASSERT_TRUE(until([&] { return notices(1) == round + 1; }));
    if (round % 2) at(1).arm();  // asleep when the next one comes
  }
}

/// What one rank's thread does in the wake-up tests: polls, and sleeps when there is nothing.
class Sleeper {
 public:
  explicit Sleeper(Transport& transport) : transport_(transport) {}

  /// The next notice; false when a sleep is not ended within kTimeout.
  bool next(uint32_t& notice) {
    std::array<Completion, 1> one;
    for (;;) {
      if (transport_.poll(one) > 0) {
        if (one[0].kind != Kind::notice) continue;
        notice = one[0].notice;
        return true;
      }
      constexpr int kTimeout_ms = std::chrono::milliseconds(kTimeout).count();
      if (transport_.arm() && !readable(transport_.capabilities().event_fd, kTimeout_ms))
        return false;
    }
  }

  /// Sends a pure notice; only where no notice can come meanwhile.
  void send(int peer, uint32_t notice) {
    std::array<Completion, 8> put_done_only;
    while (transport_.put({.peer = peer, .notice = notice}) == Posted::full) {
      transport_.poll(put_done_only);
      std::this_thread::yield();
    }
  }

 private:
  Transport& transport_;
};

/// A pause of a length around the time that falling asleep takes.
void pause(uint32_t length) {
  for (std::atomic<uint32_t> i{0}; i < length; ++i) {
  }
}

TEST_P(TransportSuite, MissesNoWakeUpInPingPong) {
  start(2);
  if (!GetParam().one_thread_per_rank) {
    EXPECT_EQ(at(0).capabilities().event_fd, -1);
    return;
  }
  constexpr uint32_t kRounds = 5000;
  uint32_t echoed = 0;
  std::thread echo([&] {
    Sleeper sleeper(at(1));
    for (uint32_t notice = 0; echoed < kRounds && sleeper.next(notice); ++echoed)
      sleeper.send(0, notice);
  });
  Sleeper sleeper(at(0));
  uint32_t round = 0;
  for (uint32_t notice = 0; round < kRounds; ++round) {
    pause(round * 7 % 3000);
    sleeper.send(1, round);
    if (!sleeper.next(notice) || notice != round) break;
  }
  echo.join();
  EXPECT_EQ(round, kRounds);
  EXPECT_EQ(echoed, kRounds);
}

TEST_P(TransportSuite, MissesNoWakeUpInAStream) {
  start(2);
  if (!GetParam().one_thread_per_rank) {
    EXPECT_EQ(at(0).capabilities().event_fd, -1);
    return;
  }
  constexpr uint32_t kNotices = 20'000;
  std::thread sender([&] {
    Sleeper sleeper(at(0));
    for (uint32_t i = 0; i < kNotices; ++i) {
      if (i % 3 == 0) pause(i * 7 % 2000);
      sleeper.send(1, i);
    }
    // What a transport has queued moves only while it is polled.
    uint32_t last = 0;
    sleeper.next(last);
  });
  Sleeper sleeper(at(1));
  uint32_t next = 0;
  for (uint32_t notice = 0; next < kNotices && sleeper.next(notice) && notice == next;) ++next;
  sleeper.send(0, 0);
  EXPECT_EQ(next, kNotices);
  sender.join();
}

}  // namespace
}  // namespace ropewalk::conformance

// How a thread that waits spends its time between turns; engine/progress.h tells of it.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "engine/driver.h"
#include "engine/relax.h"

namespace ropewalk {
namespace {

constexpr int64_t kSpin_ns = 50'000;           // then yield
constexpr int64_t kYield_ns = 20'000'000;      // then block
constexpr int64_t kYieldAside_ns = 200'000;    // the same in the background, and for any message
constexpr int64_t kLook_ns = 20'000'000;       // at most, then look around
constexpr int64_t kLookMax_ns = 500'000'000;   // the same where many ranks share a CPU
constexpr double kLookPerRank_ns = 1'000'000;  // of a CPU: a look takes some 50 us of it
constexpr double kRanksYielding = 64;          // of a CPU, at most; more block at once
constexpr int64_t kOwnYield_ns = 20'000;       // one that takes longer let somebody else compute
constexpr int64_t kLongWait_ns = 250'000;      // several times what sleeping and waking take
constexpr int kLongWaits = 4;                  // short ones in a row, then it spins again
constexpr uint32_t kSpinsPerClock = 32;
constexpr uint32_t kTurnsPerClock = 256;
constexpr uint32_t kTurnsPerClockBeside = 16;  // where the caller has something to do meanwhile
constexpr int64_t kMeanwhile_ns = 50'000;      // between two calls of that
constexpr int64_t kLookBeside_ns = 1'000'000;  // a look around where there is such a thing
constexpr uint32_t kYieldsUntilNoted = 4;      // where a yield may last

}  // namespace

int64_t Progress::look_ns_of(double ranks_per_cpu) {
  return std::clamp(static_cast<int64_t>(ranks_per_cpu * kLookPerRank_ns), kLook_ns, kLookMax_ns);
}

bool Progress::rest(WaitState& wait, bool moved) {
  if (moved)
    wait.renew();
  else
    idle(wait);
  // The clock only now and then, unless idle() has just slept.
  const uint32_t turns = wait.meanwhile != nullptr ? kTurnsPerClockBeside : kTurnsPerClock;
  if (++wait.turns % turns != 0 && !wait.blocked) return true;
  const int64_t now_ns = clock_.now_ns();
  poll_control(now_ns, wait);
  if (wait.meanwhile != nullptr && now_ns - wait.meanwhile_ns >= kMeanwhile_ns) {
    wait.meanwhile_ns = now_ns;
    (*wait.meanwhile)();
  }
  return wait.left_ns(now_ns) >= 0 || asks_on(wait, now_ns);
}

bool Progress::asks_on(WaitState& wait, int64_t now_ns) {
  if (!wait.may_fail) return false;
  std::lock_guard lock(mutex_);
  return wait.driver->needs_answers(now_ns, wait.limit_ns, wait.over_ns(now_ns));
}

void Progress::note_wait(WaitState& wait) {
  if (std::exchange(wait.counted, true) || wait.driver == nullptr) return;
  wait.begin(clock_.now_ns());  // the next look may come hundreds of yields later
  std::lock_guard lock(mutex_);
  wait.driver->count_wait(wait, 1);
}

void Progress::idle(WaitState& wait) {
  wait.blocked = false;
  const bool block_at_once = wait.long_waits > 0 || options_.ranks_per_cpu > kRanksYielding;
  // One that yields may come back late.
  const uint32_t spins_per_clock = crowded_ && !wait.background ? 2 : kSpinsPerClock;
  if (!block_at_once && ++wait.spins % spins_per_clock != 0) {
    if ((options_.yields_at_once() || crowded_) && !wait.background) {
      if (wait.spins >= kYieldsUntilNoted) note_wait(wait);  // it may not come back for long
      sched_yield();
    } else {
      relax();
    }
    return;
  }
  const int64_t now_ns = clock_.now_ns();
  if (wait.idle_since_ns == 0) wait.idle_since_ns = now_ns;
  const int64_t idle_ns = now_ns - wait.idle_since_ns;
  if (idle_ns < kSpin_ns && !wait.background && !block_at_once) return;
  if (!wait.counted) return note_wait(wait);
  const bool aside = wait.background || wait.channel || options_.across_hosts;
  const int64_t yield_ns = wait.connects ? 0 : aside ? kYieldAside_ns : kYield_ns;
  if (idle_ns < kSpin_ns + yield_ns && !block_at_once) {
    sched_yield();
    const bool took_long = clock_.now_ns() - now_ns > kOwnYield_ns;
    if (options_.across_hosts && !wait.background) crowded_ = took_long;
    // Whoever computes here needs this CPU more: sleep until there is something to do.
    if (!wait.background || !took_long) return;
  }
  wait.spins = kSpinsPerClock - 1;  // look at the clock after every block
  wait.blocked = true;
  if (!block(wait, now_ns)) return void(sched_yield());
  if (!options_.across_hosts) return;
  if (clock_.now_ns() - now_ns > kLongWait_ns)
    wait.long_waits = kLongWaits;
  else if (wait.long_waits > 0)
    --wait.long_waits;
}

bool Progress::block(WaitState& wait, int64_t now_ns) {
  std::array<pollfd, 8> fds;
  size_t count = 0;
  fds[count++] = {waiters_fd_.get(), POLLIN, 0};
  fds[count++] = {wake_fd_, POLLIN, 0};  // ppoll passes over -1
  {
    std::lock_guard lock(mutex_);
    if (wakes_ != wait.wakes_seen) return false;
    for (Transport* transport : worker_.connections().transports()) {
      if (!transport->arm()) return false;
      if (count < fds.size()) fds[count++] = {transport->capabilities().event_fd, POLLIN, 0};
    }
    // What has come while the worker is stopped may be of an epoch that begins here later.
    if (!worker_.has_failed() && worker_.connections().poll_inboxes()) return false;
    if (wait.channel && !worker_.has_failed()) {
      if (wait.driver->engine_.has_message(*wait.channel)) return false;
      const std::pair<const Engine*, int> waiter{&wait.driver->engine_, *wait.channel};
      if (std::ranges::find(message_waiters_, waiter) == message_waiters_.end())
        message_waiters_.push_back(waiter);
    }
    ++blocked_;
  }
  // After its limit a wait looks whether others have answered.
  const int64_t left_ns = std::abs(wait.left_ns(now_ns));
  const int64_t most_ns = wait.meanwhile != nullptr ? kLookBeside_ns
                          : wait.ends_soon(now_ns)  ? kLook_ns
                                                    : look_ns_;
  const timespec limit{0, std::clamp<int64_t>(left_ns, kMillisecond_ns, most_ns)};
  ::ppoll(fds.data(), count, &limit, nullptr);
  std::lock_guard lock(mutex_);
  // Read what woke us, so that it does not wake every later wait; both are non-blocking.
  // waiters_fd_ holds one count for each thread that was blocked, and none for others.
  uint64_t news;
  [[maybe_unused]] ssize_t got;
  if (wakes_ == wait.wakes_seen)
    --blocked_;
  else
    got = ::read(waiters_fd_.get(), &news, sizeof(news));
  if (fds[1].revents != 0) got = ::read(wake_fd_, &news, sizeof(news));
  return true;
}

}  // namespace ropewalk

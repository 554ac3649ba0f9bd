// A barrier over memory that the ranks share: each raises its own flag and looks at all others.
// The same for every contender, so that all start their calls equally skewed.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <climits>
#include <cstdint>

namespace ropewalk::peers {

constexpr int kRanksMax = 64;

/// How a rank waits for the others: with a core of its own; with more ranks than cores; with ranks
/// of other hosts on the same cores, to whom the kernel lets nobody yield (sched(7), autogroup).
enum class Waiting { spin, yield, sleep };

/// Lies in shared memory; all zeros is its first state.
struct BarrierFlags {
  struct alignas(128) Flag {  // two lines: neighbours are fetched in pairs
    std::atomic<uint64_t> round;
  };
  Flag flags[kRanksMax];
  // Where they sleep: how often a rank has come, and how many rounds are over.
  alignas(128) std::atomic<uint64_t> arrivals;
  std::atomic<uint32_t> rounds_over;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// One rank's view. Used by one thread.
class Barrier {
 public:
  Barrier(BarrierFlags& flags, int rank, int ranks, Waiting waiting)
      : flags_(flags), rank_(rank), ranks_(ranks), waiting_(waiting) {
    assert(waiting == Waiting::sleep || ranks <= kRanksMax);
  }

  void wait() {
    ++round_;
    if (waiting_ == Waiting::sleep) return wait_asleep();
    flags_.flags[rank_].round.store(round_, std::memory_order_release);
    for (int other = 0; other < ranks_; ++other) {
      while (flags_.flags[other].round.load(std::memory_order_acquire) < round_) idle();
    }
  }

 private:
  void wait_asleep() {
    const auto wanted = static_cast<uint32_t>(round_);
    std::atomic<uint32_t>& over = flags_.rounds_over;
    if (flags_.arrivals.fetch_add(1) + 1 == round_ * static_cast<uint64_t>(ranks_)) {
      over.store(wanted);
      futex(over, FUTEX_WAKE, INT_MAX);
      return;
    }
    for (uint32_t seen = over.load(); seen != wanted; seen = over.load()) {
      futex(over, FUTEX_WAIT, seen);
    }
  }

  // Unlike std::atomic's wait it works between processes.
  static void futex(std::atomic<uint32_t>& word, int operation, uint32_t value) {
    static_assert(sizeof word == sizeof value);
    syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
  }

  void idle() const {
    if (waiting_ == Waiting::yield) {
      sched_yield();
    } else {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  }

  BarrierFlags& flags_;
  int rank_, ranks_;
  Waiting waiting_;
  uint64_t round_ = 0;
};

}  // namespace ropewalk::peers

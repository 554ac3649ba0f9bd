// A barrier over memory that the ranks share: each raises its own flag and looks at all others.
// The same for every contender, so that all start their calls equally skewed.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace ropewalk::peers {

constexpr int kRanksMax = 16;

/// Lies in shared memory; all zeros is its first state.
struct BarrierFlags {
  struct alignas(128) Flag {  // two lines: neighbours are fetched in pairs
    std::atomic<uint64_t> round;
  };
  Flag flags[kRanksMax];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// One rank's view. Used by one thread.
class Barrier {
 public:
  /// `yields`: give the CPU away while waiting; for more ranks than cores.
  Barrier(BarrierFlags& flags, int rank, int ranks, bool yields)
      : flags_(flags), rank_(rank), ranks_(ranks), yields_(yields) {}

  void wait() {
    ++round_;
    flags_.flags[rank_].round.store(round_, std::memory_order_release);
    for (int other = 0; other < ranks_; ++other) {
      while (flags_.flags[other].round.load(std::memory_order_acquire) < round_) idle();
    }
  }

 private:
  void idle() const {
    if (yields_) {
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
  bool yields_;
  uint64_t round_ = 0;
};

}  // namespace ropewalk::peers

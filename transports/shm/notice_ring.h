// A queue of notices from one sender to one receiver, in memory that both processes map.
//
// An entry is one 64-bit word that carries its own "full" mark, so a notice costs one cache line
// from the sender to the receiver and nothing back: the receiver looks at the entry itself, not at
// a tail counter. The mark is a lap bit: 1 on the first lap over the ring, 0 on the second, and so
// on, so zeroed memory is an empty ring and nothing has to be cleared.
//
//   bit 63      lap
//   bits 32-62  unused: 0
//   bits 0-31   notice
//
// Only when the sender believes that the ring is full does it read `taken`, which the receiver
// writes once per batch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cassert>

#include "ropewalk/transport.h"

namespace ropewalk::shm {

/// Two cache lines: x86 prefetches lines in pairs, so that neighbours share falsely too.
inline constexpr size_t kLineBytes = 128;
inline constexpr uint64_t kNoticesMax = 1024;

struct NoticeRing {
  alignas(kLineBytes) std::atomic<uint64_t> taken;  // entries ever taken; the receiver writes it
  alignas(kLineBytes) std::atomic<uint64_t> entries[kNoticesMax];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "atomics must work across processes");

/// Lap bit that entry number `index` (counted from 0 for ever) carries once it is written.
constexpr uint64_t lap_bit(uint64_t index) {
  return (index / kNoticesMax + 1) % 2;
}

/// The sending end; one thread.
class NoticeSender {
 public:
  NoticeSender() = default;
  explicit NoticeSender(NoticeRing& ring) : ring_(&ring) {}

  bool full() {
    if (sent_ - taken_ < kNoticesMax) return false;
    taken_ = ring_->taken.load(std::memory_order_acquire);
    return sent_ - taken_ >= kNoticesMax;
  }

  /// Not when full. Everything written before is visible to who
  /// takes the notice. Sequentially consistent: pairs with the receiver's look before it sleeps.
  void send(uint32_t notice) {
    assert(sent_ - taken_ < kNoticesMax);
    const uint64_t word = lap_bit(sent_) << 63 | notice;
    ring_->entries[sent_ % kNoticesMax].store(word, std::memory_order_seq_cst);
    ++sent_;
  }

 private:
  NoticeRing* ring_ = nullptr;
  uint64_t sent_ = 0;
  uint64_t taken_ = 0;  // as last seen
};

/// The receiving end; one thread.
class NoticeReceiver {
 public:
  NoticeReceiver() = default;
  explicit NoticeReceiver(NoticeRing& ring) : ring_(&ring) {}

  /// Whether a notice waits. Sequentially consistent: the last look before sleeping.
  bool ready() const {
    return ring_->entries[taken_ % kNoticesMax].load(std::memory_order_seq_cst) >> 63 ==
           lap_bit(taken_);
  }

  /// Takes what is there, as completions of `peer`; returns how many.
  size_t take(std::span<Completion> into, int peer) {
    const size_t filled_max = std::min<size_t>(into.size(), kNoticesMax);
    size_t filled = 0;
    while (filled < filled_max) {
      const uint64_t word = ring_->entries[taken_ % kNoticesMax].load(std::memory_order_acquire);
      if (word >> 63 != lap_bit(taken_)) break;
      into[filled++] = {Completion::Kind::notice, peer, static_cast<uint32_t>(word), 0};
      ++taken_;
    }
    if (filled > 0) ring_->taken.store(taken_, std::memory_order_release);
    return filled;
  }

 private:
  NoticeRing* ring_ = nullptr;
  uint64_t taken_ = 0;
};

}  // namespace ropewalk::shm

// The memory that peers may write, by key.
#pragma once

#include <atomic>
#include <mutex>

#include "ropewalk/transport.h"

namespace ropewalk {

/// A key id is slot | generation << 32: two array accesses find the region, and the key of a region
/// that has gone never names a later one (generations start at 1; 2^32 reuses of a slot later the
/// slot is retired). Thread-safe, since buffers die on their users' threads; `find`, which every
/// message needs, takes no lock.
class Regions {
 public:
  uint64_t add(const Region& region) {
    if (region.base == nullptr)
      throw Error(ErrorCode::invalid_argument, "register_memory", "the region has no address");
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      const uint32_t index = used_.load(std::memory_order_relaxed);
      auto& chunk = chunks_.at(chunk_of(index));
      if (chunk == nullptr) chunk = std::make_unique<Slot[]>(size_t{kFirst} << chunk_of(index));
      free_.reserve(size_t{index} + 1);  // so that `remove` cannot throw
      free_.push_back(index);
      used_.store(index + 1, std::memory_order_release);
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    Slot& slot = at(index);
    // Who still reads the slot for its last generation sees that end before it sees these.
    std::atomic_thread_fence(std::memory_order_release);
    slot.base.store(region.base, std::memory_order_relaxed);
    slot.bytes.store(region.bytes, std::memory_order_relaxed);
    slot.generation.store(slot.next_generation, std::memory_order_release);
    return index | uint64_t{slot.next_generation} << 32;
  }

  void remove(uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto index = static_cast<uint32_t>(id);
    Slot& slot = at(index);
    slot.generation.store(0, std::memory_order_relaxed);
    if (++slot.next_generation != 0) free_.push_back(index);
  }

  /// The address of `bytes` at `offset` of region `id`, or null where any part lies outside.
  std::byte* find(uint64_t id, uint64_t offset, uint64_t bytes) const {
    const auto index = static_cast<uint32_t>(id);
    const auto generation = static_cast<uint32_t>(id >> 32);
    if (generation == 0 || index >= used_.load(std::memory_order_acquire)) return nullptr;
    const Slot& slot = at(index);
    if (slot.generation.load(std::memory_order_acquire) != generation) return nullptr;
    std::byte* const base = slot.base.load(std::memory_order_relaxed);
    const uint64_t size = slot.bytes.load(std::memory_order_relaxed);
    // Both are of this generation, if it has not ended meanwhile.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.generation.load(std::memory_order_relaxed) != generation) return nullptr;
    if (offset > size || bytes > size - offset) return nullptr;
    return base + offset;
  }

 private:
  struct Slot {
    std::atomic<uint32_t> generation = 0;  // 0: free
    std::atomic<std::byte*> base = nullptr;
    std::atomic<uint64_t> bytes = 0;
    uint32_t next_generation = 1;  // under the mutex
  };
  // Slots never move. Chunk c holds kFirst << c of them, so that few chunks are enough.
  static constexpr uint32_t kFirst = 64;
  static constexpr size_t kChunks = 26;

  static size_t chunk_of(uint32_t index) {
    return static_cast<size_t>(31 - __builtin_clz(index / kFirst + 1));
  }
  Slot& at(uint32_t index) const {
    const size_t chunk = chunk_of(index);
    return chunks_[chunk][index - ((1u << chunk) - 1) * kFirst];
  }

  std::array<std::unique_ptr<Slot[]>, kChunks> chunks_;
  std::atomic<uint32_t> used_ = 0;  // slots; those below it can be read by all
  std::mutex mutex_;                // for writers
  std::vector<uint32_t> free_;
};

}  // namespace ropewalk

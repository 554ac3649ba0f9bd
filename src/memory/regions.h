// The memory that peers may write, by key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ropewalk/transport.h"

namespace ropewalk {

/// A key id is slot | generation << 32: one array access finds the region, and the key of a region
/// that has gone never names a later one (generations start at 1; 2^32 reuses of a slot later the
/// slot is retired). Thread-safe: buffers die on their users' threads.
class Regions {
 public:
  uint64_t add(const Region& region);
  void remove(uint64_t id);

  /// The address of `bytes` at `offset` of region `id`, or null where any part lies outside.
  std::byte* find(uint64_t id, uint64_t offset, uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    const uint64_t slot = id & 0xffffffff;
    if (slot >= slots_.size()) return nullptr;
    const Slot& region = slots_[slot];
    if (region.base == nullptr || region.generation != id >> 32) return nullptr;
    if (offset > region.bytes || bytes > region.bytes - offset) return nullptr;
    return region.base + offset;
  }

 private:
  struct Slot {
    std::byte* base = nullptr;  // null: free
    uint64_t bytes = 0;
    uint32_t generation = 1;
  };
  mutable std::mutex mutex_;  // guards all below
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace ropewalk

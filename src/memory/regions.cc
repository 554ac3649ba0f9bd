#include "memory/regions.h"

namespace ropewalk {

uint64_t Regions::add(const Region& region) {
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

void Regions::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<uint32_t>(id);
  Slot& slot = at(index);
  slot.generation.store(0, std::memory_order_relaxed);
  if (++slot.next_generation != 0) free_.push_back(index);
}

}  // namespace ropewalk

#include "memory/regions.h"

namespace ropewalk {

uint64_t Regions::add(const Region& region) {
  if (region.base == nullptr)
    throw Error(ErrorCode::invalid_argument, "register_memory", "the region has no address");
  const std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.reserve(slots_.size() + 1);  // so that `remove` cannot throw
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.base = region.base;
  slot.bytes = region.bytes;
  return index | uint64_t{slot.generation} << 32;
}

void Regions::remove(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<uint32_t>(id);
  Slot& slot = slots_[index];
  slot.base = nullptr;
  if (++slot.generation != 0) free_.push_back(index);
}

}  // namespace ropewalk

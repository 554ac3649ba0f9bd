// Finds the registered memory that contains a user's span.
#pragma once

#include <iterator>
#include <map>
#include <mutex>

#include "memory/registered_memory.h"

namespace ropewalk {

/// Thread-safe. Looked up when a plan is made, never per message. Does not keep memory alive: what
/// has died is forgotten.
class MemoryRegistry {
 public:
  void add(const std::shared_ptr<RegisteredMemory>& memory) {
    const std::lock_guard lock(mutex_);
    // Also what makes reused addresses safe: memory expires before its range is unmapped, so every
    // older entry that overlaps the new range goes here.
    std::erase_if(by_base_, [](const auto& entry) { return entry.second.expired(); });
    by_base_.insert_or_assign(memory->data(), memory);
  }
  /// The memory that contains all of [address, address + bytes), or null. Nothing contains an empty
  /// range.
  std::shared_ptr<RegisteredMemory> find(const void* address, size_t bytes) const {
    if (bytes == 0) return nullptr;
    const auto* begin = static_cast<const std::byte*>(address);
    const std::lock_guard lock(mutex_);
    auto next = by_base_.upper_bound(begin);
    if (next == by_base_.begin()) return nullptr;
    auto memory = std::prev(next)->second.lock();
    if (!memory) return nullptr;
    const auto offset = static_cast<size_t>(begin - memory->data());
    if (offset > memory->bytes() || bytes > memory->bytes() - offset) return nullptr;
    return memory;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<RegisteredMemory>> by_base_;
};

}  // namespace ropewalk

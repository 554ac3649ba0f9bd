// Finds the registered memory that contains a user's span.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "memory/registered_memory.h"

namespace ropewalk {

/// Thread-safe. Looked up when a plan is made, never per message. Does not keep memory alive: what
/// has died is forgotten.
class MemoryRegistry {
 public:
  void add(const std::shared_ptr<RegisteredMemory>& memory);
  /// The memory that contains all of [address, address + bytes), or null. Nothing contains an empty
  /// range.
  std::shared_ptr<RegisteredMemory> find(const void* address, size_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::weak_ptr<RegisteredMemory>> by_base_;
};

}  // namespace ropewalk

#include "memory/memory_registry.h"

#include <iterator>

namespace ropewalk {

void MemoryRegistry::add(const std::shared_ptr<RegisteredMemory>& memory) {
  const std::lock_guard lock(mutex_);
  // Also what makes reused addresses safe: memory expires before its range is unmapped, so every
  // older entry that overlaps the new range goes here.
  std::erase_if(by_base_, [](const auto& entry) { return entry.second.expired(); });
  by_base_.insert_or_assign(memory->data(), memory);
}

std::shared_ptr<RegisteredMemory> MemoryRegistry::find(const void* address, size_t bytes) const {
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

}  // namespace ropewalk

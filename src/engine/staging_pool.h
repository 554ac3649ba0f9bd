// Registered memory for what operations stage: scratch blocks and windows. Short pieces are cut
// from longer ones, which many operations share: a registration, and a descriptor, for each
// operation would be too many.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "memory/registered_memory.h"

namespace ropewalk {

class StagingPool;

/// Page-aligned; what it holds at first is unspecified. Ends with the object: nobody may write
/// there, or read, any more. Must end before the transports. Threads: may end on any.
class Staging {
 public:
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();

  std::byte* data() const { return memory_->data() + offset_; }
  size_t bytes() const { return bytes_; }
  Region region() const { return {.base = data(), .bytes = bytes_}; }
  /// Index = transport index. Of memory that contains it.
  const std::vector<std::unique_ptr<MemoryRegistration>>& registrations() const {
    return memory_->registrations();
  }

 private:
  friend class StagingPool;
  struct SizeClasses;
  Staging(std::shared_ptr<RegisteredMemory> memory, size_t offset, size_t bytes,
          std::shared_ptr<SizeClasses> size_classes)
      : memory_(std::move(memory)),
        offset_(offset),
        bytes_(bytes),
        size_classes_(std::move(size_classes)) {}

  std::shared_ptr<RegisteredMemory> memory_;
  size_t offset_, bytes_;
  std::shared_ptr<SizeClasses>
      size_classes_;  // where it goes back to; null: it is alone in its memory
};

/// Owned by the worker and used under its lock.
class StagingPool {
 public:
  /// Which outlive it.
  explicit StagingPool(std::vector<Transport*> transports);

  /// Throws Error, as RegisteredMemory does.
  std::unique_ptr<Staging> take(size_t bytes);

 private:
  std::shared_ptr<RegisteredMemory> allocate(size_t bytes) const;

  const std::vector<Transport*> transports_;
  const std::shared_ptr<Staging::SizeClasses> size_classes_;
  std::shared_ptr<RegisteredMemory> piece_;  // of which new ones are cut
  size_t cut_ = 0;                           // bytes of it
};

}  // namespace ropewalk

// Memory that every transport can reach without a copy.
#pragma once

#include "ropewalk/types.h"

// types.h comes first: it refuses compilers that do not speak C++20.
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ropewalk {

class RegisteredMemory;  // src/memory/registered_memory.h

/// `size()` elements of registered memory: page-aligned, zeroed, on huge pages where the machine
/// has them, near the calling CPU. Movable, not copyable. May outlive its Communicator.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<RegisteredMemory> memory, T* data, size_t size)
      : memory_(std::move(memory)), data_(data), size_(size) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  T& operator[](size_t i) const noexcept { return data_[i]; }
  std::span<T> span() const noexcept { return {data_, size_}; }
  operator std::span<T>() const noexcept { return span(); }
  operator std::span<const T>() const noexcept { return {data_, size_}; }

 private:
  std::shared_ptr<RegisteredMemory> memory_;
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ropewalk

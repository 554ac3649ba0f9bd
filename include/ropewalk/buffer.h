// Memory that every transport can reach without a copy.
#pragma once

#include "ropewalk/types.h"

// types.h comes first: it refuses compilers that do not speak C++20.
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace ropewalk {

/// `size()` elements of registered memory: page-aligned, zeroed, on huge pages where the machine
/// has them, near the calling CPU. Movable, not copyable. May outlive its Communicator.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  /// `memory` owns what lies at `data`.
  Buffer(std::shared_ptr<void> memory, T* data, size_t size)
      : memory_(std::move(memory)), elements_(data, size) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    memory_ = std::move(other.memory_);
    elements_ = std::exchange(other.elements_, {});
    return *this;
  }

  T* data() const noexcept { return elements_.data(); }
  size_t size() const noexcept { return elements_.size(); }
  T* begin() const noexcept { return data(); }
  T* end() const noexcept { return data() + size(); }
  T& operator[](size_t i) const noexcept { return elements_[i]; }
  std::span<T> span() const noexcept { return elements_; }
  operator std::span<T>() const noexcept { return elements_; }
  operator std::span<const T>() const noexcept { return elements_; }

 private:
  std::shared_ptr<void> memory_;
  std::span<T> elements_;
};

}  // namespace ropewalk

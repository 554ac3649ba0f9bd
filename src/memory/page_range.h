// Whole pages of this process's address space.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/memfd.h"

namespace ropewalk {

struct PageRange {
  uintptr_t begin = 0, end = 0;

  /// The pages that hold [address, address + bytes).
  static PageRange around(const void* address, size_t bytes, size_t page) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    return {begin / page * page, round_up(begin + bytes, page)};
  }
  size_t bytes() const { return end - begin; }
  bool contains(const PageRange& other) const { return begin <= other.begin && other.end <= end; }
  bool overlaps(const PageRange& other) const { return begin < other.end && other.begin < end; }
};

}  // namespace ropewalk

// Anonymous files and shared mappings of them: the raw material of memory that local peers can map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace ropewalk {

/// Owns a shared, readable and writable mapping; unmaps it at its end.
class SharedMapping {
 public:
  SharedMapping() = default;
  /// Maps [offset, offset + bytes) of `fd`; both multiples of the file's page size. Throws
  /// Error(exhausted) or Error(system) in the name of `operation`.
  SharedMapping(const std::string& operation, int fd, size_t offset, size_t bytes);
  SharedMapping(SharedMapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMapping();

  std::byte* base() const noexcept { return base_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
};

inline constexpr size_t kHugePageBytes = size_t{2} << 20;
size_t page_bytes();
constexpr size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Whole pages of this process's address space.
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

/// An anonymous file of `bytes` zeroes whose size is sealed (no peer can shrink it under a
/// mapping). `huge`: on 2 MiB pages from the machine's pool; `bytes` must then be a multiple of
/// them. Throws Error(exhausted) with the limit to raise, or Error(system).
UniqueFd create_memfd(const std::string& operation, const char* name, size_t bytes,
                      bool huge = false);

/// Makes every page of the range present and writable, so that no later access faults. Contents
/// stay; other processes may be writing there. Returns 0, or the errno where memory ran out.
int prefault(void* address, size_t bytes);

/// The Error for a failed memory call: names `action`, the errno and the limit that is to blame.
[[noreturn]] void throw_memory_error(const std::string& operation, const std::string& action,
                                     int error);

}  // namespace ropewalk

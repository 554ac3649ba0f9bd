// Descriptors that forked children do not get, as O_CLOEXEC keeps them from other programs. While a
// child holds a connection of its parent's, its peer does not hear that the parent has died.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ropewalk {

namespace internal {
/// A bit a descriptor; those beyond, which Linux gives nobody by default, children keep.
inline constexpr size_t kDescriptorsMax = size_t{1} << 20;
extern std::atomic<uint64_t> closed_on_fork[kDescriptorsMax / 64];
/// In the child, before fork returns there.
void close_those_of_the_parent();
}  // namespace internal

/// For a descriptor that this process has just opened. Children made by fork, not by vfork or
/// posix_spawn, close it. Threads: any.
inline void close_on_fork(int fd) {
  const auto bit = static_cast<size_t>(fd);
  if (fd >= 0 && bit < internal::kDescriptorsMax)
    internal::closed_on_fork[bit / 64].fetch_or(uint64_t{1} << bit % 64, std::memory_order_relaxed);
}

/// Before it is closed: its number may be another's next. Cheap where it is none of those.
inline void keep_on_fork(int fd) {
  const auto bit = static_cast<size_t>(fd);
  if (fd < 0 || bit >= internal::kDescriptorsMax) return;
  const uint64_t mask = uint64_t{1} << bit % 64;
  auto& word = internal::closed_on_fork[bit / 64];
  if ((word.load(std::memory_order_relaxed) & mask) != 0)
    word.fetch_and(~mask, std::memory_order_relaxed);
}

}  // namespace ropewalk

// Forked children, for those who build upon communicators. A child shares its parent's connections
// and mapped memory and has none of its threads: what it did to them would reach the parent's
// peers. Communicators, Buffers, Plans, Works and AsyncEa see to that by themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace ropewalk {

namespace internal {
/// How often the processes that led to this one were forked since the library was loaded.
extern std::atomic<uint32_t> fork_count;
/// Never released.
void keep_until_exit(std::shared_ptr<void> object);
}  // namespace internal

/// Knows whether the calling process is the one that made it. Threads: any. No system call.
class ForkGuard {
 public:
  /// True in a child that was forked since: what this guards is the parent's.
  bool is_forked() const { return forks_ != internal::fork_count.load(std::memory_order_relaxed); }

 private:
  uint32_t forks_ = internal::fork_count.load(std::memory_order_relaxed);
};

/// For a destructor in a child: leaves `object` as it is, instead of ending what is the parent's.
template <class T>
void abandon(T&& object) {
  internal::keep_until_exit(std::make_shared<std::decay_t<T>>(std::forward<T>(object)));
}

}  // namespace ropewalk

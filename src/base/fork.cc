#include "ropewalk/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <bit>
#include <mutex>
#include <vector>

#include "base/close_on_fork.h"

namespace ropewalk::internal {
namespace {

/// Runs in each child before fork returns there.
void count_fork() {
  fork_count.fetch_add(1, std::memory_order_relaxed);
  close_those_of_the_parent();
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, count_fork);

}  // namespace

std::atomic<uint32_t> fork_count{0};
std::atomic<uint64_t> closed_on_fork[kDescriptorsMax / 64];

void close_those_of_the_parent() {
  for (size_t i = 0; i < std::size(closed_on_fork); ++i) {
    if (closed_on_fork[i].load(std::memory_order_relaxed) == 0)
      continue;  // none writes to the page
    for (uint64_t bits = closed_on_fork[i].exchange(0); bits != 0; bits &= bits - 1)
      ::close(static_cast<int>(64 * i) + std::countr_zero(bits));
  }
}

void keep_until_exit(std::shared_ptr<void> object) {
  // Never destroyed, and reachable: no leak to a checker.
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(object));
}

}  // namespace ropewalk::internal

#include "ropewalk/fork.h"

#include <pthread.h>

#include <mutex>
#include <vector>

namespace ropewalk::internal {
namespace {

/// Runs in each child before fork returns there.
void count_fork() {
  fork_count.fetch_add(1, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, count_fork);

}  // namespace

std::atomic<uint32_t> fork_count{0};

void keep_until_exit(std::shared_ptr<void> object) {
  // Never destroyed, and reachable: no leak to a checker.
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(object));
}

}  // namespace ropewalk::internal

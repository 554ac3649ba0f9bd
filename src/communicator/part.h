// The parts of a communicator that split makes, whose ranks have numbers of their own.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "bootstrap/job_monitor.h"
#include "ropewalk/status.h"

namespace ropewalk {

/// What a rank wants of a split.
struct SplitWish {
  int32_t color = 0, key = 0;
  uint32_t number = 0;  // of the part: the least that it may use
};
/// The ranks of `color` in their new order.
std::vector<int> ranks_of(const std::vector<SplitWish>& wishes, int color);
/// `failure` of the part of `members`, with the numbers that ranks have in the whole. Where the
/// whole has failed that is the reason; another rank may know before this one, which then waits for
/// it.
Error seen_from_whole(Failure failure, const std::vector<int>& members, const Monitor& whole);

/// What the others hear where an exception ends rank `rank`'s communicator. `cause`: why it was
/// thrown, where another rank is at fault.
Failure exception_failure(int rank, const std::optional<Failure>& cause);

/// Why an exception ends this rank's job, where another rank is at fault: whom the failure of a
/// part names, or what kept a part from being made. Thread-safe.
class Blame {
 public:
  /// `calls`: collectives started so far. Forgets the last; a failure that names nobody is not
  /// kept.
  void set(const Failure& failure, uint32_t calls) {
    const std::lock_guard lock(mutex_);
    kept_.reset();
    if (failure.peer >= 0) kept_ = {failure, calls};
  }
  /// Nothing where another collective has started since: then the exception was handled.
  std::optional<Failure> get(uint32_t calls) const {
    const std::lock_guard lock(mutex_);
    return kept_ && kept_->second == calls ? std::optional(kept_->first) : std::nullopt;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<std::pair<Failure, uint32_t>> kept_;
};

}  // namespace ropewalk

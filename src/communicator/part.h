// The parts of a communicator that split makes, whose ranks have numbers of their own.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bootstrap/monitor.h"
#include "ropewalk/rendezvous.h"
#include "ropewalk/status.h"

namespace ropewalk {

/// The ranks of `color` in their new order. `colors_and_keys`: two numbers a rank.
std::vector<int> members_of(const std::vector<int32_t>& colors_and_keys, int color);
/// `failure` of the part of `members`, with the numbers that ranks have in the whole. Where the
/// whole has failed that is the reason; another rank may know before this one, which then waits for
/// it.
Error seen_from_whole(Failure failure, const std::vector<int>& members, const Monitor& whole);
/// `failure` of the whole, with the numbers that ranks have in the part of `members`; without those
/// that are not in it.
Failure seen_from_part(Failure failure, const std::vector<int>& members);

/// Holds a unique id with the 16 addresses at most that a record has.
inline constexpr size_t kUniqueIdBytes = 1024;
/// Opens a rendezvous for a part and writes its unique id, which ends with a zero, into
/// `unique_id`. Throws Error.
Rendezvous open_rendezvous(const Options& common, bool this_host_only, std::span<char> unique_id);

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

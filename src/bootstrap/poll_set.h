// The descriptors that one round of the control thread waits for.
#pragma once

#include <poll.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace ropewalk::bootstrap {

/// Filled again before each wait. Each connection keeps the slot that add() gave it for the round;
/// slot -1 (not added) is never ready.
class PollSet {
 public:
  void clear() {
    fds_.clear();
    wake_at_ns_ = std::numeric_limits<int64_t>::max();
  }
  int add(int fd, short events) {
    fds_.push_back({fd, events, 0});
    return static_cast<int>(fds_.size()) - 1;
  }
  /// Ends the wait at this time at the latest (monotonic clock).
  void wake_at(int64_t time_ns) {
    if (time_ns < wake_at_ns_) wake_at_ns_ = time_ns;
  }
  void wait(int64_t now_ns) {
    timespec limit = {};
    const bool bounded = wake_at_ns_ != std::numeric_limits<int64_t>::max();
    if (bounded && wake_at_ns_ > now_ns) {
      limit.tv_sec = (wake_at_ns_ - now_ns) / 1'000'000'000;
      limit.tv_nsec = (wake_at_ns_ - now_ns) % 1'000'000'000;
    }
    if (ppoll(fds_.data(), fds_.size(), bounded ? &limit : nullptr, nullptr) < 0)
      for (pollfd& p : fds_) p.revents = 0;  // interrupted: nothing is known to be ready
  }
  bool ready(int slot) const { return slot >= 0 && fds_[static_cast<size_t>(slot)].revents != 0; }

 private:
  std::vector<pollfd> fds_;
  int64_t wake_at_ns_ = std::numeric_limits<int64_t>::max();
};

}  // namespace ropewalk::bootstrap

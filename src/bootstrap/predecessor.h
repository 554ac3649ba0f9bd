// Who of the members of a next epoch has ended while that is joined.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "bootstrap/poll_set.h"

namespace ropewalk::bootstrap {

/// The connections of the epoch before know it first, and tell the control thread of the next.
/// Thread-safe.
class Predecessor {
 public:
  /// `members`, by rank in the next epoch, are numbered as in the epoch before.
  explicit Predecessor(std::vector<int> members) : members_(std::move(members)) {}

  /// Of ranks of the epoch before.
  void note_ended(const std::set<int>& ranks) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < members_.size(); ++i)
      if (ranks.contains(members_[i]) && ended_.insert(static_cast<int>(i)).second) event_.set();
  }
  /// A newcomer, of that rank in the next epoch.
  void note_absent(int rank) {
    const std::lock_guard lock(mutex_);
    if (ended_.insert(rank).second) event_.set();
  }
  /// As the next epoch numbers them.
  std::set<int> ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  /// Readable once there is one.
  int event_fd() const { return event_.fd(); }

  /// The world that could not be joined, for a moment: it still tells those who come late why.
  void leave_behind(std::shared_ptr<void> world) { left_behind_ = std::move(world); }
  std::shared_ptr<void> take_left_behind() { return std::exchange(left_behind_, nullptr); }

 private:
  const std::vector<int> members_;
  Event event_;
  mutable std::mutex mutex_;
  std::set<int> ended_;                // guarded by mutex_
  std::shared_ptr<void> left_behind_;  // of the thread that joins
};

}  // namespace ropewalk::bootstrap

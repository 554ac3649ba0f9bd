// Who of the members of a next epoch has ended while that is joined.
#pragma once

#include <atomic>
#include <optional>
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
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!ranks.contains(members_[i])) continue;
      ended_ = static_cast<int>(i);
      return event_.set();
    }
  }
  /// The lowest of them, as the next epoch numbers it.
  std::optional<int> ended() const {
    const int rank = ended_;
    return rank < 0 ? std::nullopt : std::optional(rank);
  }
  /// Readable once there is one.
  int event_fd() const { return event_.fd(); }

 private:
  const std::vector<int> members_;
  Event event_;
  std::atomic<int> ended_{-1};
};

}  // namespace ropewalk::bootstrap

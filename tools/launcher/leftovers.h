// What ranks have left behind: processes that still run when every rank has ended.
#pragma once

#include <chrono>

namespace ropewalk::tools {

/// Lets them end, or ends them. Those that may still write (`tee`, say, with the last lines of its
/// rank) have `grace` from the last thing that came, but not for ever; others hardly any.
class Leftovers {
 public:
  explicit Leftovers(std::chrono::milliseconds grace);

  struct Seen {
    bool can_write = false;  // one of them may hold the output of a rank
    bool has_written = false;
    bool held_up = false;  // nobody reads what they write: that time does not count
  };
  /// Call every few milliseconds. True: none is left.
  bool advance(const Seen& seen);
  /// They were ended while they could write.
  bool were_cut_off() const { return cut_off_; }

 private:
  using Clock = std::chrono::steady_clock;

  std::chrono::milliseconds grace_;
  Clock::time_point last_, quiet_end_, end_;
  Clock::time_point detached_end_;
  bool terminated_ = false, cut_off_ = false;
};

}  // namespace ropewalk::tools

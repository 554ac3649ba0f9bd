#include "tools/launcher/leftovers.h"

#include <signal.h>

#include <algorithm>

#include "tools/launcher/processes.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortGrace{300};    // for those that can print nothing; after SIGTERM
constexpr milliseconds kWritingMax{30000};  // for those that never stop

}  // namespace

Leftovers::Leftovers(milliseconds grace)
    : grace_(std::max(grace, kShortGrace)),
      last_(Clock::now()),
      quiet_end_(last_ + grace_),
      end_(last_ + std::max(grace_, kWritingMax)),
      detached_end_(last_ + kShortGrace) {}

bool Leftovers::advance(const Seen& seen) {
  if (reap_all(milliseconds(0))) return true;
  const auto now = Clock::now();
  if (terminated_) {
    if (now < end_) return false;
    kill_descendants(kKillTimeout);
    return true;
  }
  if (seen.held_up) {
    quiet_end_ += now - last_;
    end_ += now - last_;
  }
  last_ = now;
  if (seen.has_written) quiet_end_ = now + grace_;
  if (now < (seen.can_write ? std::min(quiet_end_, end_) : detached_end_)) return false;
  signal_descendants(SIGTERM);
  terminated_ = true;
  cut_off_ = seen.can_write;
  end_ = now + kShortGrace;
  return false;
}

}  // namespace ropewalk::tools

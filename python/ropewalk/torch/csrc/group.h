// A communicator as torch uses it, from joining to leaving. Leaving must not hold up those who
// still compute.
#pragma once

#include <ropewalk/communicator.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hooks.h"
#include "outstanding_calls.h"
#include "own_process.h"

namespace ropewalk::pytorch {

/// Shared by a backend, its unfinished calls and the memory it gave out.
struct Group {
  explicit Group(std::unique_ptr<Communicator> joined) : comm(std::move(joined)) {}

  const OwnProcess process;
  const std::unique_ptr<Communicator> comm;
  std::byte barrier_byte{};
};

/// The default group of torch.distributed.
struct DefaultGroup {
  std::shared_ptr<Group> group;  // null once this process has left it
  std::string job;               // names the last there was, to all of its ranks; empty: none
};

/// This process's place in a group. Any thread.
class Membership {
 public:
  /// What makes calls and keeps them. Both are null after `leave`.
  struct Parts {
    std::shared_ptr<Group> group;
    std::shared_ptr<OutstandingCalls> calls;
  };

  /// `default_job`: DefaultGroup::job, where this is the default group.
  static std::shared_ptr<Membership> begin(std::unique_ptr<Communicator> joined,
                                           const std::string& default_job,
                                           std::shared_ptr<const Hooks> hooks);
  static DefaultGroup default_group();
  ~Membership();
  /// Nothing in a forked child.
  Parts parts() const;
  const OwnProcess& process() const { return process_; }
  /// Calls under way have five seconds to end; then they fail, on every rank, as others may wait
  /// for this one's part. Then this rank leaves. Returns when every rank has left, or after a
  /// second: a rank may well be in another group's call for long, perhaps with this one. The rest
  /// happens in the background, as all does where it does not `wait`. In a forked child it does
  /// nothing.
  void leave(bool wait = true);
  /// Leaves in the background, for another group: calls under way fail at once, on every rank.
  /// Where a rank stays, the group is broken after five seconds. In a forked child it does nothing.
  void retire();

 private:
  enum class Departure : uint8_t { awaited, in_background, retired };
  /// Calls have until `limit` to end.
  void end(std::chrono::milliseconds limit, const char* reason, Departure departure);
  static void depart(std::shared_ptr<Group> group, Departure departure);

  const OwnProcess process_;
  mutable std::mutex mutex_;
  Parts parts_;
};

/// In a thread of its own, for which `leave_all` waits. `task` must not throw.
void run_before_end(std::function<void()> task);

/// Breaks all groups with `reason`. Gives the processes of this host that had broken some of them
/// before, also of groups that were left since.
std::vector<int64_t> abort_all(const std::string& reason);

/// Leaves all groups, and waits for what happens in the background, at most for `limit`:
/// before the process ends, so that ranks that are still at work do not take this one for dead.
/// False where some rank has not left by then.
bool leave_all(std::chrono::milliseconds limit);

}  // namespace ropewalk::pytorch

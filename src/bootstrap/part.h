// A part of a job: a communicator of some of its ranks, which are numbered from 0 in it. It has
// failures and leaves of its own, and shares the job's control tree.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "bootstrap/job_monitor.h"

namespace ropewalk::bootstrap {

class Part {
 public:
  /// `number` is of no other part of any of its ranks, ever, and not 0. `members` are numbers of
  /// ranks in the job, this one among them. `whole` outlives it.
  Part(uint32_t number, std::vector<int> members, JobMonitor& whole)
      : monitor_(whole, number, std::move(members)) {}

  uint32_t number() const { return monitor_.part(); }
  /// By rank: its number in the job.
  const std::vector<int>& members() const { return monitor_.members(); }
  JobMonitor& monitor() { return monitor_; }

  /// This rank has left after `calls`; the control thread tells the others.
  void leave(const CallsMade& calls);
  /// Whether all have, as this rank knows.
  bool all_have_left() const;
  /// What the control thread calls once the part, or the job, has failed; empty: nothing.
  /// Returns when it does not run any more.
  void on_failure(std::function<void()> call);
  /// This rank has no more to say of it than it has said by now. It stays until that is told.
  void end();

 private:
  friend class PartControl;

  JobMonitor monitor_;
  std::mutex mutex_;
  std::function<void()> on_failure_;  // guarded by mutex_
  std::atomic<bool> has_ended_{false};
  // The control thread's:
  bool leave_told_ = false, failure_told_ = false, on_failure_called_ = false;
  int64_t answered_ns_ = 0;  // a question
};

/// Those of a rank. Thread-safe.
class Parts {
 public:
  void add(std::shared_ptr<Part> part);
  void remove(const Part& part);
  /// Null where there is none.
  std::shared_ptr<Part> find(uint32_t number) const;
  /// Those of `numbers` that there are.
  std::vector<std::shared_ptr<Part>> find(const std::set<uint32_t>& numbers) const;
  std::vector<std::shared_ptr<Part>> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Part>> by_number_;
};

}  // namespace ropewalk::bootstrap

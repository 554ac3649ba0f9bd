// The Monitor of a World.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/monitor.h"
#include "bootstrap/poll_set.h"

namespace ropewalk::bootstrap {

class JobMonitor final : public Monitor {
 public:
  JobMonitor(int rank, int size);

  const Failure* failure() const noexcept override {
    return failure_.load(std::memory_order_acquire);
  }
  void report(const Failure& failure) override;
  bool has_left(int peer) const noexcept override;
  std::optional<CallsMade> calls_of(int peer) const override;
  int event_fd() const noexcept override { return event_.fd(); }

  /// Notes an orderly leave; false where it was known already. Reports a mismatch where another
  /// rank has left after other calls.
  bool mark_left(int rank, CallsMade calls);
  /// Set whenever there is a new failure: the control thread waits on it to spread it.
  Event& news() { return news_; }

 private:
  const int rank_, size_;
  mutable std::mutex mutex_;               // guards the writing of stored_, and calls_
  std::unique_ptr<const Failure> stored_;  // never changes once set
  std::atomic<const Failure*> failure_{nullptr};
  std::vector<std::atomic<bool>> left_;
  std::vector<CallsMade> calls_;  // by rank that has left
  int first_left_ = -1;           // with which the others are compared
  Event event_, news_;
};

}  // namespace ropewalk::bootstrap

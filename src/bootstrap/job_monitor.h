// The Monitor of a World.
#pragma once

#include <atomic>
#include <map>
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
  void report_silent(const Failure& failure) override;
  bool has_left(int peer) const noexcept override;
  std::optional<CallsMade> calls_of(int peer) const override;
  void note_calls(uint32_t calls) noexcept override {
    started_.store(calls, std::memory_order_relaxed);
  }
  void ask_who_is_behind(uint32_t sequence) override;
  std::vector<RankBehind> behind(uint32_t sequence) const override;
  int event_fd() const noexcept override { return event_.fd(); }

  /// Of report_silent, as long as the job has not failed; the control thread completes it.
  std::optional<Failure> silence() const;
  /// Notes an orderly leave; false where it was known already. Reports a mismatch where another
  /// rank has left after other calls.
  bool mark_left(int rank, CallsMade calls);
  /// The collective that was asked about since the last call.
  std::optional<uint32_t> take_question();
  /// How many collectives this rank has started, where collective `sequence` is not among them.
  std::optional<uint32_t> calls_if_behind(uint32_t sequence) const;
  /// A rank's answer.
  void note_behind(uint32_t sequence, const RankBehind& answer);
  /// Set whenever there is a new failure, silence or question: the control thread waits on it to
  /// spread it.
  Event& news() { return news_; }

 private:
  const int rank_, size_;
  mutable std::mutex mutex_;               // guards the writing of stored_, and calls_
  std::unique_ptr<const Failure> stored_;  // never changes once set
  std::atomic<const Failure*> failure_{nullptr};
  std::optional<Failure> silence_;  // guarded by mutex_
  std::vector<std::atomic<bool>> left_;
  std::vector<CallsMade> calls_;  // by rank that has left
  int first_left_ = -1;           // with which the others are compared
  std::atomic<uint32_t> started_{0};
  std::optional<uint32_t> question_;  // guarded by mutex_
  struct Told {
    RankBehind answer;
    int64_t at_ns;
  };
  std::map<uint32_t, std::map<int, Told>> behind_;  // by sequence, rank; guarded by mutex_
  Event event_, news_;
};

}  // namespace ropewalk::bootstrap

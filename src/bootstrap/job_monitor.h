// The Monitor of a World, or of a part of its ranks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bootstrap/epoch_monitor.h"
#include "bootstrap/monitor.h"
#include "bootstrap/poll_set.h"

namespace ropewalk::bootstrap {

class JobMonitor final : public Monitor {
 public:
  JobMonitor(int rank, int size);
  /// By a clock of a simulation, which must outlive it.
  JobMonitor(int rank, int size, const Clock& clock);
  /// Of the part `part` of the job: `members` are its ranks as the job numbers them. `whole`, which
  /// outlives it, is told of what is not the part's alone, and its descriptor tells of both.
  JobMonitor(JobMonitor& whole, uint32_t part, std::vector<int> members);

  int rank() const { return rank_; }
  uint32_t part() const { return part_; }
  const std::vector<int>& members() const { return members_; }
  /// Of a whole: runs in the thread that reports its failure, with the failure and its epoch,
  /// before anybody can hear of it. Null: nothing does any more.
  void set_before_failure(std::function<void(const Failure&, uint32_t)> before_failure);
  /// There is something to spread.
  void tell_control_thread();
  const Failure* failure() const noexcept override {
    return failure_.load(std::memory_order_acquire);
  }
  void report(const Failure& failure) override { keep(failure); }
  void report_lost(const Failure& failure) override;
  void report_silent(const Failure& failure) override;
  bool has_left(int peer) const noexcept override;
  std::optional<CallsMade> calls_of(int peer) const override;
  void note_calls(uint32_t calls) noexcept override {
    started_.store(calls, std::memory_order_relaxed);
  }
  void note_waits(std::span<const Wait> waits) override;
  void ask_who_waits() override;
  std::vector<RankWaits> waits() const override;
  int event_fd() const noexcept override { return events_.event.fd(); }

  /// As `report`; false where there was a failure before.
  bool keep(const Failure& failure) { return keep_in({}, failure); }

  // Of a whole: epochs that follow each other over its connections. Thread-safe, except for
  // `renew`.
  /// How many have been followed by another.
  uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  /// The monitor of the one that lives.
  std::shared_ptr<EpochMonitor> of_epoch() const;
  /// As `report` and `report_silent`, of that epoch; nothing where it is over.
  void report_in(uint32_t epoch, const Failure& failure) { keep_in(epoch, failure); }
  void report_silent_in(uint32_t epoch, const Failure& failure);
  /// The whole has failed, and those of its ranks that are `members` go on: nothing has failed
  /// since. The others have left, without a word.
  std::shared_ptr<EpochMonitor> renew(std::vector<int> members);
  /// The number of a rank of the whole in that epoch, for messages; where it has none its own.
  int rank_in_epoch(int rank) const override;
  /// Of report_silent, as long as the job has not failed; the control thread completes it.
  std::optional<Failure> silence() const;
  /// Notes an orderly leave; false where it was known already. Reports a mismatch where another
  /// rank has left after other calls.
  bool mark_left(int rank, CallsMade calls) {
    const bool is_new = note_left(rank, std::move(calls));
    if (is_new) wake();
    return is_new;
  }
  /// The same where others follow at once: wakes nobody.
  bool note_left(int rank, CallsMade calls);
  /// Those who wait for its descriptor.
  void wake() { events_.event.set(); }
  /// Whether a rank has left after these calls, and none before it after others.
  bool agrees_with_first_leave(const CallsMade& calls) const;
  /// Whether there was a question since the last call.
  bool take_question();
  /// This rank's answer. Ages stand in place of times: ranks' clocks differ.
  RankWaits answer() const;
  /// That of `rank`, with ages likewise.
  void note_answer(int rank, RankWaits answer);
  /// Set whenever there is a new failure, silence or question: the control thread waits on it to
  /// spread it.
  Event& news() { return events_.news; }
  /// Of a whole: the parts of which there was news since the last call.
  std::set<uint32_t> take_changed_parts();

 private:
  struct Events {
    Event event, news;
  };
  JobMonitor(int rank, int size, const Clock& clock, JobMonitor* whole, uint32_t part,
             std::vector<int> members);
  bool keep_in(std::optional<uint32_t> epoch, const Failure& failure);

  const int rank_, size_;
  const Clock& clock_;
  JobMonitor* const whole_;                // null where this is one
  const uint32_t part_;                    // 0: it is the whole's
  const std::vector<int> members_;         // of a part
  const uint32_t whole_epoch_;             // of a part: the whole's epoch
  mutable std::mutex mutex_;               // guards the writing of stored_, and what follows left_
  std::unique_ptr<const Failure> stored_;  // never changes once set
  std::atomic<const Failure*> failure_{nullptr};
  std::vector<std::unique_ptr<const Failure>> former_;            // of epochs that are over
  std::atomic<uint32_t> epoch_{0};                                // written under mutex_
  std::shared_ptr<EpochMonitor> of_epoch_;                        // of a whole; guarded by mutex_
  std::optional<Failure> silence_;                                // guarded by mutex_
  std::function<void(const Failure&, uint32_t)> before_failure_;  // guarded by mutex_
  std::vector<std::atomic<bool>> left_;
  std::vector<CallsMade> calls_;  // by rank that has left
  int first_left_ = -1;           // with which the others are compared
  std::atomic<uint32_t> started_{0};
  bool asks_ = false;  // since take_question()
  std::vector<Wait> own_waits_;
  std::vector<RankWaits> answers_;            // by rank
  std::set<uint32_t> news_of_parts_;          // guarded by mutex_
  const std::unique_ptr<Events> own_events_;  // null: they are the whole's
  Events& events_;
};

/// `failure` of the whole, with the numbers that ranks have in the part of `members`; without those
/// that are not in it.
Failure seen_from_part(Failure failure, const std::vector<int>& members);
/// `failure` of the part of `members`, with the numbers that ranks have in the whole.
Failure numbered_as_in_whole(Failure failure, const std::vector<int>& members);

}  // namespace ropewalk::bootstrap

// The calls of one communicator: how they are started and waited for, and the end of that. Who
// moves them, and how a thread waits, is in engine/progress.h.
#pragma once

#include <array>
#include <cassert>
#include <functional>
#include <memory>
#include <optional>

#include "engine/progress.h"

namespace ropewalk {

/// Threads: any. What a shared_ptr owns lives for as long as one of its callbacks runs.
class Driver : public std::enable_shared_from_this<Driver> {
 public:
  /// `engine` is one of `progress`'s worker, and outlives the driver. `timeout_ns` is that of waits
  /// to which none is given.
  Driver(std::shared_ptr<Progress> progress, Engine& engine, int64_t timeout_ns);
  ~Driver() { stop(); }

  /// Runs the callbacks of what has not ended, with a failure; of the last driver of its Progress
  /// also ends the progress threads. Afterwards start, run and next_sender throw, and test and wait
  /// where the operation has not finished. Returns when no callback runs any more, but the one that
  /// calls this.
  void stop();

  /// Throws Error(invalid_argument) after stop(), and in a forked child.
  void throw_if_stopped() const;
  /// As the above in a child, which takes no lock: threads that it does not have may hold them.
  void throw_if_forked() const;
  bool is_forked() const { return progress_->is_forked(); }
  bool is_stopped() const { return stopping_; }
  /// The communicator's, as soon as this rank knows it; null: none.
  const Failure* failure() const;
  /// Throws it, if there is one.
  void throw_if_failed();
  /// Whether a caller has heard of the failure.
  bool has_thrown_failure() const { return thrown_.load(std::memory_order_relaxed); }

  /// Whether it is known already that `group` will not end.
  bool is_lost(const Group& group) const { return !group.is_finished() && failure() != nullptr; }

  int64_t timeout_ns() const { return timeout_ns_; }
  /// A group without parts, which has always ended: for handles that need their own no more. Owns
  /// this driver, which a shared_ptr must own.
  std::shared_ptr<Group> ended_group() { return {shared_from_this(), &ended_}; }

  /// Starts a run of `group`, all its parts. `in_background`: the caller may do
  /// other things before it waits, so the progress thread is to drive. Throws the failure.
  void start(Group& group, bool in_background) { start_and_drive(group, in_background, 1); }
  /// start, then wait for the deadline of the options: without a clock or a second lock where it
  /// takes little time.
  void run(Group& group);
  /// As Communicator::run_beside.
  void run_beside(Group& group, const std::function<void()>& meanwhile);
  /// Makes progress; true when finished. Throws the failure.
  bool test(Group& group);
  /// Drives until finished; throws Error(timeout) after `timeout_ns`, or the failure.
  void wait(Group& group, int64_t timeout_ns);
  /// As Work::on_done.
  void on_done(Group& group, std::function<void(const Failure*)> done, int64_t timeout_ns);
  /// The same as `wait` for at most `limit_ns`, without failing then, and in the background: true
  /// when finished.
  bool wait_for(Group& group, int64_t limit_ns) {
    CallersWait wait{*this, {.driver = this, .limit_ns = limit_ns, .background = true}};
    return finish(group, wait.state);
  }
  /// Drives until no peer needs this rank for what is under way. At the deadline it fails.
  void finish_all() noexcept;
  /// One turn of a rank that has left, and serves those who have not. True where another may soon
  /// be of use to them.
  bool serve();
  /// The same until `done()`, or the timeout: then false. Throws the failure.
  bool serve_until(const std::function<bool()>& done);
  /// What is under way does not end any more: returns when neither peers nor transports touch its
  /// memory. A part that has not failed does.
  void settle();
  /// For the control thread, as soon as it knows that the communicator, a part, has failed: tells
  /// the peers that this rank moves nothing of it any more.
  void quiesce();
  /// As Communicator::next_sender.
  std::optional<int> next_sender(int channel, int64_t limit_ns);
  void interrupt_next_sender(int channel);

  /// Runs `body` under the lock of the Progress.
  template <class Body>
  auto locked(Body&& body) {
    return progress_->locked(std::forward<Body>(body));
  }

 private:
  friend class Progress;

  /// While it lasts others may be told of it: to its very end, which may be the failure.
  struct CallersWait {
    Driver& driver;
    WaitState state;
    ~CallersWait() {
      if (state.counted) driver.locked([&] { driver.count_wait(state, -1); });
    }
  };

  /// Turns the crank until `done()`, which is asked under the lock; false after the limit. Throws
  /// the failure.
  template <class Done>
  bool drive_until(const Done& done, WaitState& wait);
  /// drive_until it is finished.
  bool finish(Group& group, WaitState& wait);
  /// start, then at most `turns` turns under the same lock, until it has ended.
  void start_and_drive(Group& group, bool in_background, uint32_t turns);
  /// How many a call may take that waits for its end anyway.
  uint32_t turns_under_lock() const;
  bool has_callbacks();
  // Under the lock:
  /// Whether others have still to say what they wait for, `over_ns` after a limit.
  bool needs_answers(int64_t now_ns, int64_t limit_ns, int64_t over_ns) const;
  /// That a wait has lasted, or (-1) that such a one is over.
  void count_wait(WaitState& wait, int change);

  const std::shared_ptr<Progress> progress_;
  Engine& engine_;
  const int64_t timeout_ns_;
  Group ended_;
  std::atomic<bool> stopping_{false};  // set under the lock
  std::atomic<bool> thrown_{false};    // the failure, to a caller
  // Under the lock:
  std::array<bool, kChannels> interrupted_{};  // whoever waits for messages, or will, is to return
  int callbacks_ready_ = 0;                    // to be run, or being run
  int64_t failed_ns_ = 0;                      // when it was first to be settled; 0: not yet
  bool settled_ = false;                       // then what it had started may be gone
};

}  // namespace ropewalk

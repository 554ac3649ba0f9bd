// Who turns the engine's crank, and how a thread waits: spin, then yield, then block.
//
// Threads: any. One mutex guards the engine. A caller that waits drives the engine itself; the
// progress thread, started with the first `start`, drives only while operations are under way and
// nobody waits.
//
// A thread that waits drives the engine. When nothing moves it spins for 50 µs, yields for 20 ms
// (in `next_sender`, which waits for nothing that is due, for 0.2 ms), then blocks in `ppoll` on
// the transports' descriptors and the monitor's, for at most 20 ms. Where the ranks of a host share
// CPUs it yields from the start, and `Plan::run` keeps the lock for one turn only. The clock is
// read only now and then, and every 5 ms without movement the engine looks for the reason.
//
// Where ranks are on several hosts it yields for 0.2 ms only, from the start where a yield showed
// that others compute on this CPU, and neither spins nor yields after
// sleeps of more than 0.25 ms: a link that brings a packet every millisecond is not served faster
// by a thread that asks for it all the time. The limit lies well above what waking takes, or two
// ranks that sleep would keep each other asleep.
//
// The progress thread, and whoever is in `Work::wait_for`, drive in the background, beside threads
// that compute. They yield at once, for a quarter of a millisecond, and block as soon as a yield
// takes long: then somebody else computed meanwhile. Spinning would take the CPU from the rank's
// own training; a sleeper is woken by the peer.
//
// A progress thread runs the callbacks of operations that have ended (on_done), without the lock.
// Meanwhile another one drives, or runs the next callback: it is started where there is none.
//
// A transport is armed before blocking; what arrives afterwards makes its descriptor readable. Over
// shared memory that is a flag `asleep` and a pipe as doorbell: a sender, of a notice or of a
// stored slot, rings only when the flag is up. Whoever polls may take what a sleeper of the same
// process waits for, so it wakes them when anything moved, and when there is a message for a
// sleeper in `next_sender`, which moves nothing by itself.
#pragma once

#include <array>
#include <cassert>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "memory/memfd.h"
#include "ropewalk/fork.h"

namespace ropewalk {

struct DriverOptions {
  int64_t timeout_ns = 30'000'000'000;
  bool progress_thread = true;
  std::optional<int> progress_cpu;
  bool oversubscribed = false;  // local ranks share CPUs: give the CPU away early
  bool across_hosts = false;    // waits may be long beside what waking takes: block early
};

/// A progress thread keeps it alive where a shared_ptr owns it.
class Driver : public std::enable_shared_from_this<Driver> {
 public:
  /// References outlive the driver. `wake_fd` (or -1) is readable when the monitor has news.
  Driver(Engine& engine, const Clock& clock, int wake_fd, DriverOptions options);
  ~Driver() { stop(); }

  /// Runs the callbacks of what has not ended, with a failure, and ends the progress threads.
  /// Afterwards start, run and next_sender throw, and test and wait where the operation has not
  /// finished.
  void stop();

  /// Throws Error(invalid_argument) after stop(), and in a forked child.
  void throw_if_stopped() const;
  /// As the above in a child, which takes no lock: threads that it does not have may hold them.
  void throw_if_forked() const;
  bool is_forked() const { return process_.is_forked(); }
  bool is_stopped() const { return stopping_; }
  /// Throws the job's failure, if there is one.
  void throw_if_failed();
  /// Whether a caller has heard of the failure.
  bool has_thrown_failure() const { return thrown_.load(std::memory_order_relaxed); }

  /// Whether it is known already that `group` will not end.
  bool is_lost(const Group& group) const {
    return !group.is_finished() && engine_.failures().failure() != nullptr;
  }

  int64_t timeout_ns() const { return options_.timeout_ns; }
  /// A group without parts, which has always ended: for handles that need their own no more. Owns
  /// this driver, which a shared_ptr must own.
  std::shared_ptr<Group> ended_group() { return {shared_from_this(), &ended_}; }

  /// Starts a run of `group`, all its parts. `in_background`: the caller may do
  /// other things before it waits, so the progress thread is to drive. Throws the job's failure.
  void start(Group& group, bool in_background) { start_and_drive(group, in_background, 1); }
  /// start, then wait for the deadline of the options: without a clock or a second lock where it
  /// takes little time.
  void run(Group& group);
  /// Makes progress; true when finished. Throws the job's failure.
  bool test(Group& group);
  /// Drives until finished; throws Error(timeout) after `timeout_ns`, or the job's failure.
  void wait(Group& group, int64_t timeout_ns);
  /// As Work::on_done.
  void on_done(Group& group, std::function<void(const Failure*)> done, int64_t timeout_ns);
  /// The same as `wait` for at most `limit_ns`, without failing then, and in the background: true
  /// when finished.
  bool wait_for(Group& group, int64_t limit_ns) {
    CallersWait wait{*this, {.limit_ns = limit_ns, .background = true}};
    return finish(group, wait.state);
  }
  /// Drives until no peer needs this rank for what is under way. At the deadline the job fails.
  void finish_all() noexcept;
  /// One turn of a rank that has left, and serves those who have not.
  void progress() {
    std::unique_lock lock(mutex_);
    if (engine_.failures().failure() == nullptr) engine_.failures().answer_connects();
    progress_locked();
    hand_over_callbacks(lock);
  }
  /// As Communicator::next_sender.
  std::optional<int> next_sender(int channel, int64_t limit_ns);
  void interrupt_next_sender(int channel) {
    assert(channel >= 0 && channel < kChannels);
    throw_if_forked();
    std::lock_guard lock(mutex_);
    interrupted_[static_cast<size_t>(channel)] = true;
    wake_waiters();
  }

  /// Runs `body` under the engine's lock.
  template <class Body>
  auto locked(Body&& body) {
    std::lock_guard lock(mutex_);
    return body();
  }

  /// The end of a limit, when other ranks are asked what they wait for; and so long after it their
  /// answers are still waited for.
  static int64_t question_time_ns(int64_t limit_ns) {
    return std::min(limit_ns / 2, 500 * kMillisecond_ns);
  }

 private:
  /// How long one has waited without anything moving.
  struct WaitState {
    // Of the whole wait, from the first look at the clock.
    int64_t limit_ns = std::numeric_limits<int64_t>::max();
    int64_t begun_ns = 0;
    int64_t over_since_ns = 0;        // the first look at the clock after the limit
    std::optional<int> channel = {};  // where messages are waited for that no recv was started for
    Group* group = nullptr;           // that is waited for
    bool leaves = false;              // this rank does, once peers need it no more
    bool background = false;  // nobody waits for this thread: it makes room for who computes
    bool may_fail = false;    // at its limit the job does
    bool counted = false;     // it has lasted: others may be told of it
    int64_t idle_since_ns = 0;
    uint32_t turns = 0, spins = 0;
    bool blocked = false;     // the last idle() slept
    int long_waits = 0;       // above 0: block at once
    uint64_t moves_seen = 0;  // moves_ after one's own last turn

    /// Something has moved.
    void renew() {
      idle_since_ns = 0;
      spins = 0;
      blocked = false;
    }
    /// There is just time enough to ask other ranks why.
    bool ends_soon(int64_t now_ns) {
      return !background && left_ns(now_ns) < question_time_ns(limit_ns);
    }
    int64_t left_ns(int64_t now_ns) {
      if (begun_ns == 0) begun_ns = now_ns;
      return limit_ns - (now_ns - begun_ns);
    }
    /// Since the limit was found to be over: a thread that was stopped looks late, and then hears
    /// first what others say.
    int64_t over_ns(int64_t now_ns) {
      if (over_since_ns == 0) over_since_ns = now_ns;
      return now_ns - over_since_ns;
    }
  };

  /// While it lasts others may be told of it: to its very end, which may be the job's failure.
  struct CallersWait {
    Driver& driver;
    WaitState state;
    ~CallersWait() {
      if (state.counted) driver.locked([&] { driver.count_wait(state, -1); });
    }
  };

  struct Callback {
    std::function<void(const Failure*)> done;
    int64_t timeout_ns;
    int64_t deadline_ns;
    int64_t over_since_ns = 0;  // as a WaitState's
  };
  struct Ready {
    std::function<void(const Failure*)> done;
    std::optional<Failure> failure;
  };

  /// Turns the crank until `done()`, which is asked under mutex_; false after the limit. Throws
  /// the job's failure.
  template <class Done>
  bool drive_until(const Done& done, WaitState& wait);
  /// drive_until it is finished.
  bool finish(Group& group, WaitState& wait);
  /// start, then at most `turns` turns under the same lock, until it has ended.
  void start_and_drive(Group& group, bool in_background, uint32_t turns);
  /// Now and then, of a wait that lasts.
  void poll_control(int64_t now_ns, WaitState& wait);
  /// After a turn, without the lock: waits a little where nothing moved, and looks now and then at
  /// the clock and for failures. False after the limit.
  bool rest(WaitState& wait, bool moved);
  /// After the limit: whether there is something to wait for still.
  bool asks_on(WaitState& wait, int64_t now_ns);
  /// Once: others may be told of this wait from now on.
  void note_wait(WaitState& wait);
  void idle(WaitState& wait);
  /// False, at once, where another thread has moved anything since, or something is there.
  bool block(WaitState& wait, int64_t now_ns);
  void run_progress_thread();
  // Under mutex_.
  /// Whether others have still to say what they wait for, `over_ns` after a limit.
  bool needs_answers(int64_t now_ns, int64_t limit_ns, int64_t over_ns) const;
  /// That a wait has lasted, or (-1) that such a one is over.
  void count_wait(WaitState& wait, int change);
  /// A turn of the engine. True when anything moved.
  bool progress_locked();
  /// What is waited for in callbacks_ will not end.
  void give_up_callbacks(const Failure& failure);
  /// Leaves what is in ready_ to a progress thread, or runs it where there is none.
  void hand_over_callbacks(std::unique_lock<std::mutex>& lock);
  /// Runs what is in ready_, without the lock.
  void run_callbacks(std::unique_lock<std::mutex>& lock);
  /// After turns in which something may have moved.
  void wake_waiters();
  /// After a turn: kicks them where there is a reason.
  void notify_waiters(bool moved);
  /// Throws Error(exhausted).
  void have_progress_thread();
  void wake_progress_thread() noexcept;

  Engine& engine_;
  const Clock& clock_;
  const int wake_fd_;
  const DriverOptions options_;
  const ForkGuard process_;
  Group ended_;
  std::mutex mutex_;  // guards the engine
  std::condition_variable work_;
  std::atomic<bool> crowded_{false};  // others compute on the CPU of who waits, says the last yield
  std::atomic<bool> stopping_{false};  // set under mutex_
  std::atomic<bool> thrown_{false};    // the job's failure, to a caller
  std::atomic<int> waiters_{0};        // callers that drive
  const UniqueFd kick_fd_;             // a semaphore: wakes threads in block()
  // Under mutex_:
  uint64_t sleepers_ = 0;  // threads in block(), not yet kicked by one who polls in their stead
  uint64_t moves_ = 0;     // kicks, ever: for those who are about to sleep
  std::array<bool, kChannels> message_waiters_{};  // a sleeper waits for messages of this channel
  std::array<bool, kChannels> interrupted_{};      // whoever waits for them, or will, is to return
  int64_t looked_ns_ = 0;
  int progressing_ = 0;           // progress threads that are not in a callback
  bool progress_drives_ = false;  // one of them is at it; the others rest
  std::vector<std::thread> progress_;
  std::unordered_multimap<const Group*, Callback> callbacks_;  // of groups under way
  std::deque<Ready> ready_;                                    // to be run
};

}  // namespace ropewalk

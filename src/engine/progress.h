// Who turns the worker's crank, and how a thread waits: spin, then yield, then block.
//
// Threads: any. One mutex guards the worker and the engines of all its communicators. A caller that
// waits drives the worker itself; the progress thread, started with the first `start`, drives only
// while operations are under way and nobody waits.
//
// A thread that waits drives the worker. When nothing moves it spins for 50 µs, yields for 20 ms
// (in `next_sender`, which waits for nothing that is due, for 0.2 ms), then blocks in `ppoll` on
// the transports' descriptors and the monitor's, for at most 20 ms. Where the ranks of a host share
// CPUs, or a turn makes system calls (TCP between hosts), it yields from the start, and `Plan::run`
// keeps the lock for one turn only: beside a system call a yield is cheap, and it may be the peer
// that waits for this CPU. The clock is read only now and then, and every 5 ms without movement the
// engines look for the reason.
//
// Where ranks are on several hosts it yields for 0.2 ms only, from the start where a yield showed
// that others compute on this CPU, and neither spins nor yields after
// sleeps of more than 0.25 ms: a link that brings a packet every millisecond is not served faster
// by a thread that asks for it all the time. The limit lies well above what waking takes, or two
// ranks that sleep would keep each other asleep.
//
// Where a CPU has more than 20 ranks, each sleeps and looks for so many milliseconds, at most half
// a second: else hundreds that wait would take the CPUs from those whom they wait for. With more
// than 64 it blocks at once. What arrives still wakes it at once.
//
// The progress thread, and threads in `Work::wait_for`, drive in the background, while other
// threads compute. They yield at once, for a quarter of a millisecond, and block as soon as a yield
// takes long: then somebody else computed meanwhile. Spinning would take the CPU from the rank's
// own training; a blocked thread is woken by the peer.
//
// A progress thread runs the callbacks of operations that have ended (on_done), without the lock.
// Meanwhile another one drives, or runs the next callback: it is started where there is none.
//
// A transport is armed before blocking; what arrives afterwards makes its descriptor readable. Over
// shared memory that is a flag `asleep` and a pipe as doorbell: a sender, of a notice or of a
// stored slot, rings only when the flag is up. A polling thread may take what a blocked thread
// of the same process waits for, so it wakes them when anything moved, and when there is a message
// for one of them in `next_sender`, which moves nothing by itself.
#pragma once

#include <algorithm>
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

class Driver;

struct ProgressOptions {
  bool progress_thread = true;
  std::optional<int> progress_cpu;
  bool oversubscribed = false;  // local ranks share CPUs: give the CPU away early
  bool across_hosts = false;    // waits may be long beside what waking takes: block early
  bool polls_kernel = false;    // each turn makes system calls
  double ranks_per_cpu = 1;     // of the fullest host
  int64_t timeout_ns = 0;       // of the job

  /// Give the CPU away after each turn.
  bool yields_at_once() const { return oversubscribed || polls_kernel; }
};

/// The end of a limit, when other ranks are asked what they wait for; and so long after it their
/// answers are still waited for.
constexpr int64_t question_time_ns(int64_t limit_ns) {
  return std::min(limit_ns / 2, 500 * kMillisecond_ns);
}

/// How long a thread has waited without anything moving.
struct WaitState {
  Driver* driver = nullptr;  // whose call waits; null: a progress thread does
  // Of the whole wait, from the first look at the clock, or from when it was counted.
  int64_t limit_ns = std::numeric_limits<int64_t>::max();
  int64_t begun_ns = 0;
  int64_t over_since_ns = 0;        // the first look at the clock after the limit
  std::optional<int> channel = {};  // where messages are waited for that no recv was started for
  Group* group = nullptr;           // that is waited for
  bool leaves = false;              // this rank does, once peers need it no more
  bool background = false;          // nobody waits for this thread: it makes room for who computes
  bool may_fail = false;            // at its limit the communicator does
  bool counted = false;             // it has lasted: others may be told of it
  bool connects = false;            // peers are asked for connections: that takes a while
  int64_t idle_since_ns = 0;
  uint32_t turns = 0, spins = 0;
  bool blocked = false;                              // the last idle() slept
  int long_waits = 0;                                // above 0: block at once
  uint64_t wakes_seen = 0;                           // wakes_ after one's own last turn
  const std::function<void()>* meanwhile = nullptr;  // called now and then, without the lock
  int64_t meanwhile_ns = 0;                          // when it was

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
  void begin(int64_t now_ns) {
    if (begun_ns == 0) begun_ns = now_ns;
  }
  int64_t left_ns(int64_t now_ns) {
    begin(now_ns);
    return limit_ns - (now_ns - begun_ns);
  }
  /// Since the limit was found to be over: a thread that was stopped looks late, and then hears
  /// first what others say.
  int64_t over_ns(int64_t now_ns) {
    if (over_since_ns == 0) over_since_ns = now_ns;
    return now_ns - over_since_ns;
  }
};

/// A progress thread keeps it alive where a shared_ptr owns it.
class Progress : public std::enable_shared_from_this<Progress> {
 public:
  /// References outlive it. `wake_fd` (or -1) is readable when the job's monitor has news.
  Progress(Worker& worker, const Clock& clock, int wake_fd, ProgressOptions options);
  ~Progress();

  /// In a forked child no lock is to be taken: threads that it does not have may hold them.
  bool is_forked() const { return process_.is_forked(); }

  /// All that has failed has been given up, and its memory is the callers': goes on without that,
  /// and without the peers `departed`, as Worker::restart.
  void restart(const std::vector<int>& departed);

  /// Runs `body` under the lock.
  template <class Body>
  auto locked(Body&& body) {
    std::lock_guard lock(mutex_);
    return body();
  }

 private:
  friend class Driver;  // of one communicator

  struct Callback {
    Driver& driver;
    std::function<void(const Failure*)> done;
    int64_t timeout_ns;
    int64_t deadline_ns;
    int64_t over_since_ns = 0;  // as a WaitState's
  };
  struct Ready {
    Driver& driver;
    std::shared_ptr<Driver> keeps;  // it; null where nothing owns it
    std::function<void(const Failure*)> done;
    std::optional<Failure> failure;
  };

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
  static int64_t look_ns_of(double ranks_per_cpu);
  void run_progress_thread();
  /// Ends the progress threads, once they have run what is ready.
  void end_threads(std::unique_lock<std::mutex>& lock);
  // Under mutex_.
  /// A turn of the worker. True when anything moved.
  bool turn();
  void check_callback(const Group& group, Callback& callback, int64_t now_ns);
  /// `callback` is to be run.
  void make_ready(Callback& callback, const Failure* failure);
  /// What is waited for in callbacks of `driver`, which is settled, will not end.
  void give_up_callbacks(Driver& driver, const Failure& failure);
  /// The same of all that have failed and are settled. True where there were some.
  bool give_up_failed();
  /// A step towards the end of what peers and transports still do with memory of `driver`, which
  /// has failed. True once that is over: callers may have their memory back.
  bool settle(Driver& driver);
  /// The same of all that are to be settled.
  void settle_all();
  int64_t settle_limit_ns(const Driver& driver) const;
  void fail_unsettled(const Engine& engine, int64_t waited_ns);
  /// Leaves what is in ready_ to a progress thread, or runs it where there is none.
  void hand_over_callbacks(std::unique_lock<std::mutex>& lock);
  /// Runs what is in ready_, without the lock.
  void run_callbacks(std::unique_lock<std::mutex>& lock);
  /// Until none of `driver` is to be run any more, or is being run by another thread.
  void await_callbacks(const Driver& driver, std::unique_lock<std::mutex>& lock);
  /// It has been stopped: what it drove may be gone.
  void forget(const Driver& driver);
  /// After turns in which something may have moved.
  void wake_waiters();
  /// After a turn: wakes threads in block() where there is a reason.
  void notify_waiters(bool moved);
  /// Throws Error(exhausted).
  void have_progress_thread();
  void wake_progress_thread() noexcept;

  Worker& worker_;
  const Clock& clock_;
  const int wake_fd_;
  const ProgressOptions options_;
  const int64_t look_ns_;   // a thread in block() looks around so often
  const int64_t check_ns_;  // between two looks at stalled operations, each of which asks peers
  const ForkGuard process_;
  std::mutex mutex_;  // guards the worker, and all engines
  std::condition_variable work_, callbacks_run_;
  std::atomic<bool> crowded_{false};  // others compute on the CPU of who waits, says the last yield
  std::atomic<int> waiters_{0};       // callers that drive
  const UniqueFd waiters_fd_;         // a semaphore: wakes threads in block()
  // Under mutex_:
  std::vector<Driver*> drivers_;  // that have not been stopped
  bool stopping_ = false;
  int unsettled_ = 0;     // drivers that are being settled
  uint64_t blocked_ = 0;  // threads in block() that no polling thread has woken yet
  uint64_t wakes_ = 0;    // so far: a thread that is about to block compares
  std::vector<std::pair<const Engine*, int>> message_waiters_;  // and channel: of blocked threads
  int64_t looked_ns_ = 0, checked_ns_ = 0;
  int progressing_ = 0;           // progress threads that are not in a callback
  bool progress_drives_ = false;  // one of them is at it; the others rest
  std::vector<std::thread> progress_;
  std::unordered_multimap<const Group*, Callback> callbacks_;  // of groups under way
  std::deque<Ready> ready_;                                    // to be run
};

}  // namespace ropewalk

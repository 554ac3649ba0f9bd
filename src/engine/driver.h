// Who turns the engine's crank, and how a thread waits: spin, then yield, then block.
//
// Threads: any. One mutex guards the engine. A caller that waits drives the engine itself; the
// progress thread, started with the first `start`, drives only while operations are under way and
// nobody waits.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/engine.h"
#include "memory/memfd.h"

namespace ropewalk {

struct DriverOptions {
  int64_t timeout_ns = 30'000'000'000;
  bool progress_thread = true;
  std::optional<int> progress_cpu;
  bool oversubscribed = false;  // local ranks share CPUs: give the CPU away early
};

class Driver {
 public:
  /// References outlive the driver. `wake_fd` (or -1) is readable when the monitor has news.
  Driver(Engine& engine, const Clock& clock, int wake_fd, DriverOptions options);
  ~Driver();

  /// Ends the progress thread. Nothing may be started afterwards.
  void stop();

  int64_t timeout_ns() const { return options_.timeout_ns; }

  /// Starts a run of `operation`, or of each of its children. `in_background`: the caller may do
  /// other things before it waits, so the progress thread is to drive. Throws the job's failure.
  void start(const std::shared_ptr<Operation>& operation, bool in_background);
  /// start, then wait for the deadline of the options: without a clock or a second lock where it
  /// takes little time.
  void run(const std::shared_ptr<Operation>& operation);
  /// Makes progress; true when finished. Throws the job's failure.
  bool test(Operation& operation);
  /// Drives until finished; throws Error(timeout) after `timeout_ns`, or the job's failure.
  void wait(Operation& operation, int64_t timeout_ns);

  /// Runs `body` under the engine's lock.
  template <class Body>
  auto locked(Body&& body) {
    std::lock_guard lock(mutex_);
    return body();
  }

 private:
  /// How long one has waited without anything moving.
  struct Patience {
    int64_t idle_since_ns = 0;
    uint32_t spins = 0;
    bool blocked = false;     // the last idle() slept
    uint64_t moves_seen = 0;  // moves_ after one's own last turn
  };

  void throw_if_failed();
  void start_locked(Operation& operation);
  void look_around(int64_t now_ns);
  bool is_finished(const Operation& operation) const;
  const Operation& unfinished_part(const Operation& operation) const;
  void idle(Patience& patience);
  /// Not where another thread has moved anything since.
  void block(int64_t limit_ns, uint64_t moves_seen);
  void run_progress_thread();
  // Under mutex_.
  /// After turns in which something may have moved.
  void kick_sleepers();
  void wake_progress_thread();
  void start_one(Operation& operation);

  Engine& engine_;
  const Clock& clock_;
  const int wake_fd_;
  const DriverOptions options_;
  std::mutex mutex_;  // guards the engine
  std::condition_variable work_;
  std::atomic<int> waiters_{0};  // callers that drive
  const UniqueFd kick_fd_;       // a semaphore: wakes threads in block()
  // Under mutex_:
  uint64_t sleepers_ = 0;  // threads in block(); whoever polls in their stead kicks them
  uint64_t moves_ = 0;     // kicks, ever: for those who are about to sleep
  int64_t looked_ns_ = 0;
  bool stopping_ = false;
  std::thread progress_;
};

}  // namespace ropewalk

// Follows calls whose end somebody is told of, or that nobody waits for any more.
//
// The communicator moves their bytes by itself; this looks when they have ended. None holds up
// another: calls are tested in turns. What hangs on a future runs in threads of its own, one more
// whenever all are busy, since it may wait for another call's future.
#pragma once

#include <condition_variable>
#include <deque>
#include <thread>

#include "pending_call.h"

namespace ropewalk::pytorch {

class CallbackThreads {
 public:
  ~CallbackThreads() { stop(); }
  void run(std::function<void()> callback);
  /// Runs what is left, then ends. From a callback: that one's thread is let go.
  void stop();

 private:
  /// Each thread holds it: a callback may destroy what is around this.
  struct State {
    std::mutex mutex;  // guards all
    std::condition_variable changed;
    std::deque<std::function<void()>> callbacks;
    size_t idle = 0;
    bool stopping = false;
  };
  static void work(State& state);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<std::thread> threads_;  // under state_->mutex
};

/// Threads: any may call. Its thread starts with the first call.
class Watcher {
 public:
  ~Watcher() { stop(std::chrono::milliseconds(0)); }
  void watch(std::shared_ptr<PendingCall> call);
  /// One that is left to whoever has its handle until `stop`, which watches it.
  void expect(std::weak_ptr<PendingCall> call);
  /// Ends, when all calls have or after `limit`. Those that have not fail then, after `interrupt`,
  /// which gets threads out of them. What is watched later fails at once.
  void stop(std::chrono::milliseconds limit, std::function<void()> interrupt = {});

 private:
  using Clock = std::chrono::steady_clock;
  struct Watched {
    std::shared_ptr<PendingCall> call;
    Clock::time_point since;
  };

  void run();
  /// One look at each; true where some have ended.
  bool poll_all(std::vector<Watched>& watched);
  void finish(PendingCall::Announcement announcement);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched> arriving_;
  std::vector<std::weak_ptr<PendingCall>> expected_;
  size_t expected_max_ = 0;  // then those that are gone are forgotten
  bool stopping_ = false;
  std::function<void()> interrupt_;
  Clock::time_point stop_at_;
  std::thread thread_;
  CallbackThreads callbacks_;
};

}  // namespace ropewalk::pytorch

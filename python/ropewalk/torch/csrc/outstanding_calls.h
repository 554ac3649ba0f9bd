// The calls of a process group that have not ended: whoever leaves it waits for them. Receives from
// any source begin here.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "pending_call.h"

namespace ropewalk::pytorch {

/// Completes futures for threads that must not run their callbacks. A callback may wait for another
/// call's future, so there is one more thread whenever all are busy.
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

/// Threads: any may call.
class OutstandingCalls {
 public:
  /// `comm` outlives `stop`.
  OutstandingCalls(Communicator& comm, std::shared_ptr<const Hooks> hooks)
      : comm_(comm), hooks_(std::move(hooks)) {}
  ~OutstandingCalls() { stop(std::chrono::milliseconds(0)); }

  const std::shared_ptr<const Hooks>& hooks() const { return hooks_; }
  /// One that `stop` is to wait for.
  void add(const std::shared_ptr<PendingCall>& call);
  /// `receive` is from whichever rank sends first: `call` begins when there is a message. A thread
  /// of this sleeps until then.
  void receive_from_any(const std::shared_ptr<PendingCall>& call, const Call& receive,
                        at::Tensor tensor);
  /// In one of the callback threads.
  void run_callback(std::function<void()> callback) { callbacks_.run(std::move(callback)); }
  /// Waits for the calls, at most for `limit`. Those that have not ended fail then, after
  /// `interrupt`, which gets threads out of them. What is added later fails at once.
  void stop(std::chrono::milliseconds limit, const std::function<void()>& interrupt = {});

 private:
  using Clock = std::chrono::steady_clock;
  struct FromAny {
    std::shared_ptr<PendingCall> call;
    Call receive;
    at::Tensor tensor;
    Clock::time_point deadline;
  };

  void find_senders();
  void begin_first(int sender);
  std::deque<FromAny> take_from_any();

  Communicator& comm_;
  const std::shared_ptr<const Hooks> hooks_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::weak_ptr<PendingCall>> calls_;
  size_t calls_max_ = 0;  // then those that are gone are forgotten
  std::deque<FromAny> from_any_;
  bool stopping_ = false;  // nothing is added any more
  bool finder_stops_ = false;
  std::thread finder_;
  CallbackThreads callbacks_;
};

}  // namespace ropewalk::pytorch

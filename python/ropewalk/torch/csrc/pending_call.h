// A call under way: what it needs to its end, how it ends, and who is told.
#pragma once

#include <ATen/core/ivalue.h>
#include <ropewalk/communicator.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "hooks.h"

namespace ropewalk::pytorch {

class OutstandingCalls;

struct WorkInfo {
  int rank;
  c10d::OpType type;
  const char* title;  // for the profiler: "ropewalk:all_reduce"
  uint64_t sequence;
  std::chrono::milliseconds timeout;
};

/// Shared by torch's handle and whoever tells of its end. Any thread.
class PendingCall : public std::enable_shared_from_this<PendingCall> {
 public:
  PendingCall(const std::shared_ptr<OutstandingCalls>& calls, std::vector<at::Tensor> outputs,
              const WorkInfo& info, std::function<void()> record_end);

  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  const WorkInfo& info() const { return info_; }
  /// Of no other call of the process.
  uint64_t key() const { return key_; }
  std::string name() const;  // "all_reduce"
  bool has_ended() const;
  std::exception_ptr error() const;
  int source() const;

  /// The call has become `work`. At its end `finish` runs, which may be empty; what that holds goes
  /// then. `source` is the rank that a receive from any source has found. At most once.
  void begin(Work work, std::function<void()> finish, int source = -1);
  /// Before `begin` of a call that its caller may time out meanwhile. False where it has ended, and
  /// must not begin.
  bool claim();
  /// Makes the call here: ended when it returns.
  void run(const std::function<void()>& call);
  /// Has the communicator call back at the end, and fail the call after its timeout. Otherwise only
  /// those who test and wait hear of it.
  void follow();

  // For threads of the program: they run the future's callbacks themselves.
  void test();
  /// Waits to the end; fails the call after `timeout`.
  void wait(std::chrono::milliseconds timeout);
  /// Of a call that is no operation, or could not become one.
  void end(std::exception_ptr error = nullptr) { settle(end_first(std::move(error))); }

  // For other threads: the future's callbacks run in a callback thread.
  /// At most for `limit`, without failing then.
  void wait_for(std::chrono::nanoseconds limit);
  /// Ends what will not be done. Its memory is in use until its operation has ended.
  void fail(const Error& error);
  /// Ends a receive for which there was no message for so long, unless it is being begun.
  void fail_without_sender(std::chrono::milliseconds waited);
  /// Tells of the end, once it is there.
  c10::intrusive_ptr<c10::ivalue::Future> future();

 private:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;

  /// Runs `step`, which returns whether the call has ended, and ends it then, or where it throws.
  template <class Step>
  Future attempt(const Step& step);
  /// The first end counts: it gives the future that is to be settled, where there is one.
  Future end_first(std::exception_ptr error);
  /// Null where it has ended, or has not begun after `limit`.
  Work* begun_within(std::chrono::nanoseconds limit);
  void settle(const Future& future) const;
  /// The same in a callback thread.
  void settle_aside(Future future);

  const std::vector<at::Tensor> outputs_;
  const WorkInfo info_;
  const uint64_t key_;
  const std::weak_ptr<OutstandingCalls> calls_;
  const std::shared_ptr<const Hooks> hooks_;
  mutable std::mutex mutex_;  // guards what follows; work_, once there, stays
  std::condition_variable changed_;
  std::function<void()> finish_;  // holds memory that work_ uses, so it goes after that
  std::optional<Work> work_;
  std::function<void()> record_end_;                               // the profiler's
  std::optional<std::chrono::steady_clock::time_point> followed_;  // since when
  bool claimed_ = false;
  bool ending_ = false;  // some thread is at it
  bool ended_ = false;
  std::exception_ptr error_;
  int source_ = -1;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// "ropewalk:all_reduce" is all_reduce to whoever calls it.
std::string call_name(std::string_view title);

/// The exception that Python sees: torch.distributed.DistBackendError, or ValueError where the call
/// was refused. It names the rank, and the call with `title`: a failure that the whole job learns
/// of has been noticed anywhere.
std::exception_ptr as_backend_error(const Error& error, int rank, const char* title = nullptr);

}  // namespace ropewalk::pytorch

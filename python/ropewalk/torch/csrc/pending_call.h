// A call under way: what it needs to its end, how it ends, and who is told.
#pragma once

#include <ATen/core/ivalue.h>
#include <ropewalk/communicator.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace ropewalk::pytorch {

struct WorkInfo {
  int rank;
  c10d::OpType type;
  const char* title;  // for the profiler: "ropewalk:all_reduce"
  uint64_t sequence;
  std::chrono::milliseconds timeout;
};

/// What drives a call, and holds its memory. Used by one thread at a time.
class Pending {
 public:
  virtual ~Pending() = default;
  // All throw ropewalk::Error when the call has failed; what follows it has been done when they say
  // that it has ended.
  virtual bool test() = 0;
  /// At most for `limit`, without failing then.
  virtual bool wait_for(std::chrono::nanoseconds limit) = 0;
  /// Fails the call after `timeout`.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
  /// Fails the call, unless it has ended, after others have waited for so long.
  virtual void expire(std::chrono::milliseconds waited) = 0;
  /// The rank that a receive from any source took its message from; else -1.
  virtual int source() const { return -1; }
};

/// A call that the thread makes that waits for it: `run` gets the timeout.
template <class Run>
class Immediate final : public Pending {
 public:
  explicit Immediate(Run run) : run_(std::move(run)) {}
  bool test() override { return false; }
  bool wait_for(std::chrono::nanoseconds) override { return false; }
  void wait(std::chrono::milliseconds timeout) override { run_(timeout); }
  void expire(std::chrono::milliseconds) override { run_(std::chrono::milliseconds(0)); }

 private:
  Run run_;
};

/// Shared by torch's handle and the watcher. Any thread.
class PendingCall : public std::enable_shared_from_this<PendingCall> {
 public:
  /// Runs what hangs on the end of a call, which may take long and may wait for other calls. Empty
  /// where nothing does.
  using Announcement = std::function<void()>;

  /// `pending` is null where the call has ended already.
  PendingCall(std::unique_ptr<Pending> pending, std::vector<at::Tensor> outputs,
              const WorkInfo& info, std::function<void()> record_end);

  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  std::chrono::milliseconds timeout() const { return info_.timeout; }
  bool has_ended() const;
  std::exception_ptr error() const;
  int source() const;

  /// Tests, or waits for `limit` where that is not 0. Nothing while the call is under way, or
  /// another thread is at it.
  std::optional<Announcement> poll(std::chrono::nanoseconds limit = {});
  /// Waits to the end; fails the call after `timeout`.
  Announcement wait(std::chrono::milliseconds timeout);
  /// Fails a call whose time is over: it has taken so long. Nothing where another thread is at it,
  /// which has its own limit.
  std::optional<Announcement> expire(std::chrono::milliseconds waited);
  /// Ends a call that nobody will drive any more.
  Announcement give_up(const char* reason);
  /// Tells of the end, once it is there.
  c10::intrusive_ptr<c10::ivalue::Future> future();

 private:
  template <class Step>
  std::optional<Announcement> advance(std::unique_lock<std::mutex> turn, const Step& step);
  Announcement end(int source, std::exception_ptr error);
  void settle(c10::ivalue::Future& future) const;

  const std::vector<at::Tensor> outputs_;
  const WorkInfo info_;
  std::mutex turn_;  // held by the thread that drives
  std::unique_ptr<Pending> pending_;
  mutable std::mutex state_;  // guards what follows; taken after turn_
  bool ended_ = false;
  std::exception_ptr error_;
  int source_ = -1;
  std::function<void()> record_end_;  // the profiler's
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// "ropewalk:all_reduce" is all_reduce to whoever calls it.
std::string call_name(std::string_view title);

/// The exception that Python sees: torch.distributed.DistBackendError, or ValueError where the call
/// was refused. It names the rank, and the call with `title`: a failure that the whole job learns
/// of has been noticed anywhere.
std::exception_ptr as_backend_error(const Error& error, int rank, const char* title = nullptr);

}  // namespace ropewalk::pytorch

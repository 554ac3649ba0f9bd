// A communicator and what Python may still hold of it: tasks, plans, policies and arrays keep their
// session, so the communicator dies last.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/communicator.h"
#include "ropewalk/fork.h"

namespace ropewalk::python {

/// Something under way that must end before its session leaves the job.
class Task {
 public:
  virtual ~Task() = default;
  /// Waits for its end; who waits for it later learns how that was. Call without the GIL.
  virtual void settle() noexcept = 0;
  /// Where the job is aborted: ends waits for other ranks, also those of calls that are under way
  /// in other threads.
  virtual void abandon(const std::string& /*reason*/) noexcept {}
  /// Whether it may go on with the next epoch: `shrink` does not settle it.
  virtual bool outlives_epoch() const noexcept { return false; }
};

/// Thread-safe. Destroyed with the GIL held.
class Session {
 public:
  explicit Session(std::unique_ptr<Communicator> communicator);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  /// Throws Error(invalid_argument) once closed, and in a forked child.
  Communicator& open();
  /// True in a child of the process that joined: it has no part in the job, and its threads, which
  /// may have held locks, are not there. So nothing is waited for there, and nothing destroyed.
  bool is_forked() const { return guard_.is_forked(); }
  /// Throws Error(invalid_argument) in a forked child.
  void require_own_process() const;
  void settle_at_close(const std::shared_ptr<Task>& task);
  /// Breaks the communicator on every rank, and what was made of it on this one.
  void abort(const std::string& reason);
  /// Communicator::culprit_process, also when closed.
  std::optional<int64_t> culprit_process() const { return communicator_->culprit_process(); }
  /// Collective, as Communicator::split; null where color is negative.
  std::shared_ptr<Session> split(int color, int key);
  /// As Communicator::create_group.
  std::shared_ptr<Session> create_group(const std::vector<int>& ranks,
                                        const Communicator::Exchange& exchange,
                                        std::optional<std::chrono::nanoseconds> timeout);
  void revoke(const std::string& reason) { open().revoke(reason); }
  Agreed agree(uint64_t bits, std::optional<std::chrono::nanoseconds> timeout) {
    return open().agree(bits, timeout);
  }
  /// As Communicator::shrink; then this session is closed.
  std::shared_ptr<Session> shrink(std::optional<std::chrono::nanoseconds> timeout);
  /// As Communicator::grow; this session is closed then, unless that gave null.
  std::shared_ptr<Session> grow(std::optional<std::chrono::nanoseconds> timeout);
  /// As Communicator::depart; this session is closed then.
  void depart(std::optional<std::chrono::nanoseconds> timeout);
  int pending() { return open().pending(); }
  const Epoch& epoch() const { return communicator_->epoch(); }
  /// Settles what is under way, then leaves the job. The second call, or a forked child's, does
  /// nothing.
  void close() { end(false); }
  bool is_closed() const { return closed_; }

  // Known for good, also when closed.
  const int rank, size, local_rank, local_size;
  const std::string transport;

 private:
  void end(bool is_followed);
  std::vector<std::shared_ptr<Task>> live_tasks();

  const ForkGuard guard_;
  const pid_t process_ = getpid();
  std::unique_ptr<Communicator> communicator_;
  std::atomic<bool> closed_{false};
  std::mutex tasks_mutex_;  // guards tasks_
  std::vector<std::weak_ptr<Task>> tasks_;
};

/// A method of the object that has it. With the GIL; nothing in a forked child.
inline void settle_task(const Session& session, Task& task) {
  if (session.is_forked()) return;
  nanobind::gil_scoped_release unlocked;
  task.settle();
}
/// Likewise, after an exception in its block.
inline void abandon_task(const Session& session, Task& task, const char* name) {
  if (session.is_forked()) return;
  nanobind::gil_scoped_release unlocked;
  task.abandon(std::string("an exception ended its ") + name);
  task.settle();
}
/// Waits for its end, after which what it uses may go; in a forked child gives it up. With the GIL.
template <class T>
void end_task(const Session& session, std::shared_ptr<T>& task) {
  if (session.is_forked()) return abandon(std::move(task));
  nanobind::gil_scoped_release unlocked;
  task->settle();
  task.reset();
}

}  // namespace ropewalk::python

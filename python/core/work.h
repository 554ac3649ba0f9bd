// Started operations and plans, as Python holds them: with the arrays that they use.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "call.h"
#include "session.h"

namespace ropewalk::python {

/// A Work or a Plan. Call without the GIL.
template <class Handle>
struct HandleTask final : Task {
  explicit HandleTask(Handle started) : handle(std::move(started)) {}
  void settle() noexcept override {
    try {
      handle.wait();
    } catch (const Error&) {  // whoever waits, or calls, is told again
    }
  }

  Handle handle;
  std::mutex mutex;  // of a plan: one run at a time
};

/// Thread-safe by the GIL, which is let go while it waits.
class StartedWork {
 public:
  StartedWork(std::shared_ptr<Session> session, std::vector<PreparedCall> calls, Work work);
  StartedWork(const StartedWork&) = delete;
  StartedWork& operator=(const StartedWork&) = delete;
  ~StartedWork();  // waits for the end

  bool test();
  void wait(std::optional<double> seconds);
  /// As Work::on_done: `callback` gets None, or the error.
  void on_done(nb::callable callback, std::optional<double> seconds);

 private:
  std::shared_ptr<Session> session_;  // first: goes last
  std::vector<PreparedCall> calls_;   // until the end
  std::shared_ptr<HandleTask<Work>> task_;
};

/// Before the interpreter ends: waits for callbacks of on_done that run, and runs no more of them.
/// Call without the GIL.
void end_callbacks();

class RepeatedPlan {
 public:
  RepeatedPlan(std::shared_ptr<Session> session, PreparedCall call, Plan plan);
  RepeatedPlan(const RepeatedPlan&) = delete;
  RepeatedPlan& operator=(const RepeatedPlan&) = delete;
  ~RepeatedPlan();  // waits for a run that is under way

  void run();
  void start();
  bool test();
  void wait(std::optional<double> seconds);
  std::string algorithm() const;

 private:
  std::shared_ptr<Session> session_;  // first: goes last
  PreparedCall call_;
  std::shared_ptr<HandleTask<Plan>> task_;
};

}  // namespace ropewalk::python

// Started operations and plans, as Python holds them: with the arrays that they use.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "call.h"
#include "session.h"

namespace ropewalk::python {

/// A started operation whose end is remembered: test and wait may be called again, by any thread.
/// Call without the GIL.
class StartedTask : public Task {
 public:
  explicit StartedTask(Work work) : work_(std::move(work)) {}
  bool test();
  void wait(std::optional<std::chrono::nanoseconds> timeout);
  void settle() noexcept override;

 private:
  template <class Step>
  bool advance(Step step);

  std::mutex mutex_;  // guards what follows
  Work work_;
  bool finished_ = false;
  std::exception_ptr error_;
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

 private:
  std::shared_ptr<Session> session_;  // first: goes last
  std::vector<PreparedCall> calls_;   // until the end
  std::shared_ptr<StartedTask> task_;
};

/// The same for a plan. Call without the GIL.
class PlanTask : public Task {
 public:
  explicit PlanTask(Plan plan) : plan_(std::move(plan)) {}
  void run();
  void start();
  bool test();
  void wait(std::optional<std::chrono::nanoseconds> timeout);
  void settle() noexcept override;
  Algorithm algorithm() const { return plan_.algorithm(); }

 private:
  std::mutex mutex_;  // guards plan_
  Plan plan_;
};

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
  std::shared_ptr<PlanTask> task_;
};

}  // namespace ropewalk::python

#include "work.h"

#include <utility>

#include "seconds.h"

namespace ropewalk::python {

/// `step` tells whether the operation has ended; what it throws is its end too.
template <class Step>
bool StartedTask::advance(Step step) {
  std::lock_guard lock(mutex_);
  if (!finished_) {
    try {
      finished_ = step();
    } catch (const Error&) {
      error_ = std::current_exception();
      finished_ = true;
    }
  }
  if (error_) std::rethrow_exception(error_);
  return finished_;
}

bool StartedTask::test() {
  return advance([this] { return work_.test(); });
}

void StartedTask::wait(std::optional<std::chrono::nanoseconds> timeout) {
  advance([&] {
    work_.wait(timeout);
    return true;
  });
}

void StartedTask::settle() noexcept {
  try {
    wait({});
  } catch (const Error&) {  // kept for whoever waits
  }
}

StartedWork::StartedWork(std::shared_ptr<Session> session, std::vector<PreparedCall> calls,
                         Work work)
    : session_(std::move(session)),
      calls_(std::move(calls)),
      task_(std::make_shared<StartedTask>(std::move(work))) {
  session_->settle_at_close(task_);
}

/// Also where another thread, in close(), is waiting for it: only then may the arrays go.
StartedWork::~StartedWork() {
  if (session_->is_forked()) {
    abandon(std::move(task_));
    return;
  }
  nb::gil_scoped_release unlocked;
  task_->settle();
  task_.reset();
}

bool StartedWork::test() {
  session_->require_own_process();
  bool finished = false;
  {
    nb::gil_scoped_release unlocked;
    finished = task_->test();
  }
  if (finished) const auto done = std::exchange(calls_, {});
  return finished;
}

void StartedWork::wait(std::optional<double> seconds) {
  session_->require_own_process();
  {
    nb::gil_scoped_release unlocked;
    task_->wait(nanoseconds_of(seconds));
  }
  const auto done = std::exchange(calls_, {});
}

void PlanTask::run() {
  std::lock_guard lock(mutex_);
  plan_.run();
}

void PlanTask::start() {
  std::lock_guard lock(mutex_);
  plan_.start();
}

bool PlanTask::test() {
  std::lock_guard lock(mutex_);
  return plan_.test();
}

void PlanTask::wait(std::optional<std::chrono::nanoseconds> timeout) {
  std::lock_guard lock(mutex_);
  plan_.wait(timeout);
}

void PlanTask::settle() noexcept {
  try {
    wait({});
  } catch (const Error&) {  // the communicator tells it to every later call
  }
}

RepeatedPlan::RepeatedPlan(std::shared_ptr<Session> session, PreparedCall call, Plan plan)
    : session_(std::move(session)),
      call_(std::move(call)),
      task_(std::make_shared<PlanTask>(std::move(plan))) {
  session_->settle_at_close(task_);
}

RepeatedPlan::~RepeatedPlan() {
  if (session_->is_forked()) {
    abandon(std::move(task_));
    return;
  }
  nb::gil_scoped_release unlocked;
  task_->settle();
  task_.reset();
}

void RepeatedPlan::run() {
  session_->open();
  nb::gil_scoped_release unlocked;
  task_->run();
}

void RepeatedPlan::start() {
  session_->open();
  nb::gil_scoped_release unlocked;
  task_->start();
}

bool RepeatedPlan::test() {
  session_->open();
  nb::gil_scoped_release unlocked;
  return task_->test();
}

void RepeatedPlan::wait(std::optional<double> seconds) {
  session_->open();
  nb::gil_scoped_release unlocked;
  task_->wait(nanoseconds_of(seconds));
}

std::string RepeatedPlan::algorithm() const {
  return std::string(name_of(task_->algorithm()));
}

}  // namespace ropewalk::python

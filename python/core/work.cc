#include "work.h"

#include <utility>

#include "errors.h"
#include "seconds.h"

namespace ropewalk::python {

StartedWork::StartedWork(std::shared_ptr<Session> session, std::vector<PreparedCall> calls,
                         Work work)
    : session_(std::move(session)),
      calls_(std::move(calls)),
      task_(std::make_shared<HandleTask<Work>>(std::move(work))) {
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
    finished = task_->handle.test();
  }
  if (finished) const auto done = std::exchange(calls_, {});
  return finished;
}

void StartedWork::wait(std::optional<double> seconds) {
  session_->require_own_process();
  {
    nb::gil_scoped_release unlocked;
    task_->handle.wait(nanoseconds_of(seconds));
  }
  const auto done = std::exchange(calls_, {});
}

void StartedWork::on_done(nb::callable callback, std::optional<double> seconds) {
  session_->require_own_process();
  const std::shared_ptr<nb::callable> held(new nb::callable(std::move(callback)),
                                           [](nb::callable* last) {
                                             nb::gil_scoped_acquire locked;
                                             delete last;
                                           });
  nb::gil_scoped_release unlocked;
  task_->handle.on_done(
      [held](const Failure* failure) {
        nb::gil_scoped_acquire locked;
        try {
          (*held)(failure == nullptr ? nb::none() : python_error_of(Error(*failure)));
        } catch (nb::python_error& error) {  // there is nobody to raise it to
          error.discard_as_unraisable(*held);
        }
      },
      nanoseconds_of(seconds));
}

RepeatedPlan::RepeatedPlan(std::shared_ptr<Session> session, PreparedCall call, Plan plan)
    : session_(std::move(session)),
      call_(std::move(call)),
      task_(std::make_shared<HandleTask<Plan>>(std::move(plan))) {
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
  task_->handle.run();
}

void RepeatedPlan::start() {
  session_->open();
  nb::gil_scoped_release unlocked;
  task_->handle.start();
}

bool RepeatedPlan::test() {
  session_->open();
  nb::gil_scoped_release unlocked;
  return task_->handle.test();
}

void RepeatedPlan::wait(std::optional<double> seconds) {
  session_->open();
  nb::gil_scoped_release unlocked;
  task_->handle.wait(nanoseconds_of(seconds));
}

std::string RepeatedPlan::algorithm() const {
  return std::string(name_of(task_->handle.algorithm()));
}

}  // namespace ropewalk::python

#include "work.h"

#include <condition_variable>
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
  end_task(*session_, task_);
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

namespace {

/// A thread that asks for the GIL of an interpreter that is ending would never come back.
struct Callbacks {
  const ForkGuard process;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  int running = 0;
  bool ended = false;

  template <class Body>
  void run(const Body& body) {
    {
      std::lock_guard lock(mutex);
      if (ended) return;
      ++running;
    }
    {
      nb::gil_scoped_acquire locked;
      body();
    }
    std::lock_guard lock(mutex);
    --running;
    changed.notify_all();
  }
} callbacks;

}  // namespace

void end_callbacks() {
  if (callbacks.process.is_forked()) return;  // the threads are the parent's
  std::unique_lock lock(callbacks.mutex);
  callbacks.ended = true;
  callbacks.changed.wait(lock, [] { return callbacks.running == 0; });
}

void StartedWork::on_done(nb::callable callback, std::optional<double> seconds) {
  session_->require_own_process();
  const std::shared_ptr<nb::callable> held(
      new nb::callable(std::move(callback)),
      [](nb::callable* last) { callbacks.run([last] { delete last; }); });
  nb::gil_scoped_release unlocked;
  const auto done = [held](const Failure* failure) {
    callbacks.run([&] {
      try {
        (*held)(failure == nullptr ? nb::none() : python_error_of(Error(*failure)));
      } catch (nb::python_error& error) {  // there is nobody to raise it to
        error.discard_as_unraisable(*held);
      }
    });
  };
  task_->handle.on_done(done, nanoseconds_of(seconds));
}

RepeatedPlan::RepeatedPlan(std::shared_ptr<Session> session, PreparedCall call, Plan plan)
    : session_(std::move(session)),
      call_(std::move(call)),
      task_(std::make_shared<HandleTask<Plan>>(std::move(plan))) {
  session_->settle_at_close(task_);
}

RepeatedPlan::~RepeatedPlan() {
  end_task(*session_, task_);
}

void RepeatedPlan::run() {
  session_->open();
  nb::gil_scoped_release unlocked;
  std::lock_guard lock(task_->mutex);
  task_->handle.run();
}

void RepeatedPlan::start() {
  session_->open();
  nb::gil_scoped_release unlocked;
  std::lock_guard lock(task_->mutex);
  task_->handle.start();
}

bool RepeatedPlan::test() {
  session_->open();
  nb::gil_scoped_release unlocked;
  std::lock_guard lock(task_->mutex);
  return task_->handle.test();
}

void RepeatedPlan::wait(std::optional<double> seconds) {
  session_->open();
  nb::gil_scoped_release unlocked;
  std::lock_guard lock(task_->mutex);
  task_->handle.wait(nanoseconds_of(seconds));
}

std::string RepeatedPlan::algorithm() const {
  return std::string(name_of(task_->handle.algorithm()));
}

}  // namespace ropewalk::python

#include "session.h"

#include <fmt/format.h>
#include <nanobind/nanobind.h>

namespace ropewalk::python {

Session::Session(std::unique_ptr<Communicator> communicator)
    : rank(communicator->rank()),
      size(communicator->size()),
      local_rank(communicator->local_rank()),
      local_size(communicator->local_size()),
      transport(communicator->transport()),
      communicator_(std::move(communicator)) {}

Session::~Session() {
  nanobind::gil_scoped_release unlocked;
  communicator_.reset();
}

void Session::require_own_process() const {
  if (is_forked())
    throw Error(Failure{
        ErrorCode::invalid_argument, "communicator",
        fmt::format("process {} was forked from process {}, which is the rank", getpid(), process_),
        "make calls in that one; children compute, or join a job of their own", rank});
}

Communicator& Session::open() {
  require_own_process();
  if (closed_)
    throw Error(Failure{ErrorCode::invalid_argument, "communicator", "it is closed",
                        "call it before close(), or inside the with block", rank});
  return *communicator_;
}

void Session::settle_at_close(const std::shared_ptr<Task>& task) {
  std::lock_guard lock(tasks_mutex_);
  std::erase_if(tasks_, [](const auto& known) { return known.expired(); });
  tasks_.push_back(task);
}

std::vector<std::shared_ptr<Task>> Session::live_tasks() {
  std::lock_guard lock(tasks_mutex_);
  std::vector<std::shared_ptr<Task>> live;
  for (const auto& known : tasks_)
    if (auto task = known.lock()) live.push_back(std::move(task));
  return live;
}

void Session::abort(const std::string& reason) {
  open().abort(reason);
  for (const auto& task : live_tasks()) task->abandon(reason);
}

std::shared_ptr<Session> Session::split(int color, int key) {
  auto part = open().split(color, key);
  return part ? std::make_shared<Session>(std::move(part)) : nullptr;
}

std::shared_ptr<Session> Session::create_group(const std::vector<int>& ranks,
                                               const Communicator::Exchange& exchange,
                                               std::optional<std::chrono::nanoseconds> timeout) {
  return std::make_shared<Session>(open().create_group(ranks, exchange, timeout));
}

std::shared_ptr<Session> Session::shrink(std::optional<std::chrono::nanoseconds> timeout) {
  auto next = std::make_shared<Session>(open().shrink(timeout));
  end(true);
  return next;
}

std::shared_ptr<Session> Session::grow(std::optional<std::chrono::nanoseconds> timeout) {
  auto grown = open().grow(timeout);
  if (!grown) return nullptr;
  auto next = std::make_shared<Session>(std::move(grown));
  end(true);
  return next;
}

void Session::depart(std::optional<std::chrono::nanoseconds> timeout) {
  open().depart(timeout);
  end(true);
}

void Session::end(bool is_followed) {
  if (is_forked() || closed_.exchange(true)) return;
  for (const auto& task : live_tasks())
    if (!is_followed || !task->outlives_epoch()) task->settle();
  communicator_->leave();
}

}  // namespace ropewalk::python

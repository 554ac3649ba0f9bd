#include <utility>

#include "base/log.h"
#include "engine/driver.h"
#include "ropewalk/communicator.h"
#include "ropewalk/fork.h"

namespace ropewalk {
namespace {

int64_t timeout_of(const Group& group, std::optional<std::chrono::nanoseconds> timeout) {
  return timeout ? timeout->count() : group.driver->timeout_ns();
}

Group& require(const std::shared_ptr<Group>& group) {
  if (!group)
    throw Error(ErrorCode::invalid_argument, "wait", "an empty Work or Plan has nothing to run");
  group->driver->throw_if_forked();
  return *group;
}

/// Waits for an operation whose handle goes away; there is nobody to throw to.
void finish(std::shared_ptr<const void>& owner, std::shared_ptr<Group>& group) noexcept {
  if (!group) return;
  if (group->driver->is_forked()) {
    abandon(std::move(group));
    return abandon(std::move(owner));
  }
  // A failure that is known is thrown by the calls that follow, if it has not been.
  const bool is_known = group->driver->is_lost(*group) || group->driver->is_stopped();
  const LogLevel level = is_known ? LogLevel::debug : LogLevel::warn;
  try {
    group->driver->wait(*group, group->driver->timeout_ns());
  } catch (const Error& error) {
    log(level, error.rank(), "an operation that nobody waited for failed: {}", error.what());
  }
  group.reset();
}

/// `step` tells whether the operation has ended. Then others may run its group again, so the handle
/// lets go of it.
template <class Step>
bool advance(std::shared_ptr<Group>& handle, const Step& step) {
  const auto group = std::atomic_load(&handle);
  if (!step(require(group))) return false;
  std::atomic_store(&handle, group->driver->ended_group());
  return true;
}

}  // namespace

internal::Handle& internal::Handle::operator=(Handle&& other) noexcept {
  if (this == &other) return *this;
  finish(owner_, group_);
  group_ = std::move(other.group_);
  owner_ = std::move(other.owner_);
  return *this;
}

internal::Handle::~Handle() {
  finish(owner_, group_);
}

bool Work::test() {
  return advance(group_, [](Group& group) { return group.driver->test(group); });
}

void Work::wait(std::optional<std::chrono::nanoseconds> timeout) {
  advance(group_, [&](Group& group) {
    group.driver->wait(group, timeout_of(group, timeout));
    return true;
  });
}

void Work::on_done(std::function<void(const Failure*)> done,
                   std::optional<std::chrono::nanoseconds> timeout) {
  const auto group = std::atomic_load(&group_);
  require(group).driver->on_done(*group, std::move(done), timeout_of(*group, timeout));
}

bool Work::wait_for(std::chrono::nanoseconds limit) {
  return advance(group_,
                 [limit](Group& group) { return group.driver->wait_for(group, limit.count()); });
}

void Plan::run() {
  require(group_).driver->run(*group_);
}

void Plan::start() {
  require(group_).driver->start(*group_, true);
}

bool Plan::test() {
  return require(group_).driver->test(*group_);
}

void Plan::wait(std::optional<std::chrono::nanoseconds> timeout) {
  require(group_).driver->wait(*group_, timeout_of(*group_, timeout));
}

Algorithm Plan::algorithm() const {
  return require(group_).algorithm();
}

}  // namespace ropewalk

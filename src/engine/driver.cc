#include "engine/driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "engine/relax.h"

namespace ropewalk {
namespace {

constexpr uint32_t kTurnsUnderLock = 64;  // of run(): some microseconds

Error has_left() {
  return {ErrorCode::invalid_argument, "communicator", "this rank has left the job",
          "make every call before the communicator is left"};
}

}  // namespace

Driver::Driver(std::shared_ptr<Progress> progress, Engine& engine, int64_t timeout_ns)
    : progress_(std::move(progress)), engine_(engine), timeout_ns_(timeout_ns) {
  ended_.driver = {std::shared_ptr<Driver>(), this};  // owns nothing, or this would own itself
  locked([&] { progress_->drivers_.push_back(this); });
}

void Driver::stop() {
  if (!stopping_ && has_callbacks()) settle();
  std::unique_lock lock(progress_->mutex_);
  if (!stopping_.exchange(true)) {
    progress_->worker_.drop(engine_);
    progress_->give_up_callbacks(*this, failure() != nullptr ? *failure() : has_left().failure());
    progress_->hand_over_callbacks(lock);
    progress_->wake_waiters();
    progress_->forget(*this);
  }
  if (progress_->drivers_.empty()) progress_->end_threads(lock);
  progress_->await_callbacks(*this, lock);
}

/// In a job of one there is no control thread that tells its parts.
const Failure* Driver::failure() const {
  const Failure* const own = engine_.failures().failure();
  const Worker& worker = progress_->worker_;
  return own != nullptr || worker.connections().size() > 1 ? own : worker.failure();
}

void Driver::throw_if_failed() {
  const Failure* const failed = failure();
  if (failed == nullptr) return;
  // Another thread may still be at work on buffers that the caller will free, and stops at its
  // next turn; adapters stop when they are told.
  settle();
  {
    std::unique_lock lock(progress_->mutex_);
    progress_->give_up_callbacks(*this, *failed);
    progress_->hand_over_callbacks(lock);
  }
  thrown_.store(true, std::memory_order_relaxed);
  throw Error(*failed);
}

void Driver::settle() {
  constexpr auto kPause = std::chrono::microseconds(50);
  std::unique_lock lock(progress_->mutex_);
  if (failure() == nullptr && !engine_.is_whole())
    engine_.failures().fail_here({ErrorCode::aborted, "leave",
                                  fmt::format("rank {} has left, and what it had started has not "
                                              "ended",
                                              engine_.links().rank())});
  while (!progress_->settle(*this)) {
    if (progress_->turn()) continue;
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

void Driver::quiesce() {
  std::lock_guard lock(progress_->mutex_);
  if (failure() == nullptr || stopping_) return;
  if (!progress_->worker_.has_failed()) progress_->settle(*this);
  progress_->wake_progress_thread();  // for what is to be settled still, and for callbacks
}

bool Driver::has_callbacks() {
  return locked([&] {
    return std::ranges::any_of(progress_->callbacks_,
                               [&](const auto& entry) { return &entry.second.driver == this; });
  });
}

void Driver::throw_if_forked() const {
  if (!is_forked()) return;
  throw Error(
      ErrorCode::invalid_argument, "communicator",
      fmt::format("this process is a forked child; the communicator is its parent's, rank {}",
                  engine_.links().rank()),
      "make calls in the process that made the communicator");
}

void Driver::throw_if_stopped() const {
  throw_if_forked();
  if (stopping_) throw has_left();
}

void Driver::on_done(Group& group, std::function<void(const Failure*)> done, int64_t timeout_ns) {
  throw_if_forked();
  const bool settled = !group.is_finished() && failure() != nullptr;
  if (settled) settle();
  std::optional<Failure> why;
  {
    std::lock_guard lock(progress_->mutex_);
    if (group.is_finished()) {
      // It is told below.
    } else if (settled && failure() != nullptr) {
      why = *failure();
    } else if (stopping_) {
      why = has_left().failure();
    } else {
      const int64_t now_ns = progress_->clock_.now_ns();
      const int64_t left_ns = std::numeric_limits<int64_t>::max() - now_ns;
      engine_.failures().note_callback(group);
      progress_->callbacks_.emplace(&group,
                                    Progress::Callback{*this, std::move(done), timeout_ns,
                                                       now_ns + std::min(timeout_ns, left_ns)});
      progress_->wake_progress_thread();
      return;
    }
  }
  done(why ? &*why : nullptr);
}

void Driver::run(Group& group) {
  start_and_drive(group, false, turns_under_lock());
  wait(group, timeout_ns_);
}

void Driver::run_beside(Group& group, const std::function<void()>& meanwhile) {
  start_and_drive(group, false, turns_under_lock());
  if (group.is_finished()) return;
  CallersWait wait{*this, {.driver = this, .meanwhile = &meanwhile}};
  finish(group, wait.state);
}

uint32_t Driver::turns_under_lock() const {
  return progress_->options_.yields_at_once() ? 1 : kTurnsUnderLock;
}

void Driver::start_and_drive(Group& group, bool in_background, uint32_t turns) {
  throw_if_forked();
  throw_if_failed();
  std::unique_lock lock(progress_->mutex_);
  throw_if_stopped();  // before its tuner is asked, which is gone then
  while (const auto awaited = group.is_finished() ? group.awaited() : nullptr) {
    lock.unlock();
    wait(*awaited, timeout_ns_);
    lock.lock();
    throw_if_stopped();
  }
  if (in_background) progress_->have_progress_thread();
  if (!group.is_finished())
    throw Error(ErrorCode::invalid_argument, "start", "its last run is still under way",
                "wait for it, or make a second plan");
  group.start(engine_);
  for (uint32_t turn = 0; turn < turns && !group.is_finished(); ++turn)
    if (!progress_->turn() && turn + 1 < turns) relax();
  progress_->wake_waiters();  // these turns may have taken what a blocked thread waits for
  // Where it has ended already, bytes that a transport could not take yet must not wait for the
  // next call.
  if ((in_background || group.is_finished()) && progress_->worker_.has_work())
    progress_->wake_progress_thread();
  progress_->hand_over_callbacks(lock);
}

bool Driver::test(Group& group) {
  throw_if_forked();
  if (!group.is_finished()) {
    if (stopping_) throw_if_failed();  // says more
    throw_if_stopped();
    std::unique_lock lock(progress_->mutex_, std::try_to_lock);
    if (lock.owns_lock()) {
      progress_->turn();
      engine_.failures().check_stalled(progress_->clock_.now_ns());
      progress_->wake_waiters();
      progress_->hand_over_callbacks(lock);
      lock.unlock();
    }
    throw_if_failed();
  }
  return group.is_finished();
}

template <class Done>
bool Driver::drive_until(const Done& done, WaitState& wait) {
  Progress& progress = *progress_;
  progress.waiters_.fetch_add(1, std::memory_order_relaxed);
  struct Leave {
    Progress& progress;
    ~Leave() {
      std::lock_guard lock(progress.mutex_);
      progress.waiters_.fetch_sub(1, std::memory_order_relaxed);
      progress.wake_waiters();
      progress.worker_.unmap_deregistered();
      if (progress.worker_.has_work() && !progress.worker_.has_failed())
        progress.wake_progress_thread();
    }
  } leave{progress};
  for (;;) {
    bool moved = false;
    {
      std::unique_lock lock(progress.mutex_);
      // What was under way when this was stopped does not end any more, and may be gone.
      if (!stopping_) moved = progress.turn();
      progress.notify_waiters(moved);
      wait.wakes_seen = progress.wakes_;
      wait.connects = progress.worker_.connections().are_connecting();
      const bool is_done = done();
      progress.hand_over_callbacks(lock);
      if (is_done) return true;
    }
    throw_if_failed();
    throw_if_stopped();
    if (wait.limit_ns <= 0 || !progress.rest(wait, moved)) return false;
  }
}

void Driver::wait(Group& group, int64_t timeout_ns) {
  throw_if_forked();
  if (group.is_finished()) return;
  struct Waiting {
    explicit Waiting(Group& waited) : group(waited) { group.waiters.fetch_add(1); }
    ~Waiting() { group.waiters.fetch_sub(1); }
    Group& group;
  } waiting(group);
  CallersWait wait{*this, {.driver = this, .limit_ns = timeout_ns, .may_fail = true}};
  while (!finish(group, wait.state)) {
    std::lock_guard lock(progress_->mutex_);
    if (const Operation* part = group.unfinished_part())
      engine_.failures().fail_timeout(*part, timeout_ns);
  }
}

bool Driver::finish(Group& group, WaitState& wait) {
  throw_if_forked();
  wait.group = &group;
  return group.is_finished() || drive_until([&] { return group.is_finished(); }, wait);
}

void Driver::finish_all() noexcept {
  try {
    const auto done = [this] { return engine_.owed_to_peers() == nullptr; };
    CallersWait wait{*this,
                     {.driver = this, .limit_ns = timeout_ns_, .leaves = true, .may_fail = true}};
    if (failure() != nullptr) return;
    const bool all_done = drive_until(done, wait.state);
    std::lock_guard lock(progress_->mutex_);
    if (all_done) return engine_.end_links();
    if (const Operation* owed = engine_.owed_to_peers())
      engine_.failures().fail_timeout(*owed, timeout_ns_);
  } catch (const Error&) {
    return;  // whoever waits for an operation hears of it
  }
}

bool Driver::serve() {
  std::unique_lock lock(progress_->mutex_);
  if (failure() == nullptr) engine_.failures().answer_connects();
  const bool moved = progress_->turn();
  const bool has_unsent = progress_->worker_.connections().has_unsent();
  progress_->hand_over_callbacks(lock);
  return moved || has_unsent;
}

bool Driver::serve_until(const std::function<bool()>& done) {
  CallersWait wait{*this, {.driver = this, .limit_ns = timeout_ns_}};
  return drive_until(done, wait.state);
}

std::optional<int> Driver::next_sender(int channel, int64_t limit_ns) {
  throw_if_forked();
  throw_if_failed();
  std::optional<int> sender;
  const auto done = [&] {
    sender = engine_.next_sender(channel);
    return sender || std::exchange(interrupted_[static_cast<size_t>(channel)], false);
  };
  CallersWait wait{*this, {.driver = this, .limit_ns = limit_ns, .channel = channel}};
  drive_until(done, wait.state);
  return sender;
}

void Driver::interrupt_next_sender(int channel) {
  assert(channel >= 0 && channel < kChannels);
  throw_if_forked();
  std::lock_guard lock(progress_->mutex_);
  interrupted_[static_cast<size_t>(channel)] = true;
  progress_->wake_waiters();
}

bool Driver::needs_answers(int64_t now_ns, int64_t limit_ns, int64_t over_ns) const {
  return over_ns < question_time_ns(limit_ns) &&
         !engine_.failures().all_have_answered(now_ns, limit_ns);
}

/// Who waits for messages longer than any wait may last is a server: it does not wait for anything
/// that is due.
void Driver::count_wait(WaitState& wait, int change) {
  wait.counted = change > 0;
  if (stopping_) return;  // operations may be gone
  FailureDetector& failures = engine_.failures();
  if (wait.group != nullptr)
    failures.count_awaiters(*wait.group, change);
  else if (wait.leaves)
    failures.count_leavers(change);
  else if (wait.channel && wait.limit_ns <= timeout_ns_)
    failures.count_receivers(*wait.channel, change);
}

}  // namespace ropewalk

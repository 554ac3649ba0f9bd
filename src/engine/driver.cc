#include "engine/driver.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptors.h"
#include "base/start_thread.h"
#include "engine/relax.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

constexpr int64_t kCheckInterval_ns = 5'000'000;  // between looks at stalled operations
constexpr uint32_t kTurnsUnderLock = 64;          // of run(): some microseconds

Error has_left() {
  return {ErrorCode::invalid_argument, "communicator", "this rank has left the job",
          "make every call before the communicator is left"};
}

}  // namespace

Driver::Driver(Engine& engine, const Clock& clock, int wake_fd, DriverOptions options)
    : engine_(engine),
      clock_(clock),
      wake_fd_(wake_fd),
      options_(options),
      kick_fd_(::eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC)) {
  ended_.driver = {std::shared_ptr<Driver>(), this};  // owns nothing, or this would own itself
  if (kick_fd_.get() < 0)
    throw Error(ErrorCode::exhausted, "communicator", "cannot make an event descriptor",
                advice_for_descriptors(errno));
}

void Driver::stop() {
  std::unique_lock lock(mutex_);
  if (!stopping_.exchange(true)) {
    const Failure* failure = engine_.failures().failure();
    give_up_callbacks(failure != nullptr ? *failure : has_left().failure());
    hand_over_callbacks(lock);
    wake_waiters();
  }
  work_.notify_all();
  while (!progress_.empty()) {
    std::thread thread = std::move(progress_.back());
    progress_.pop_back();
    lock.unlock();
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();  // it calls this from a callback, and holds what it needs to end
    else
      thread.join();
    lock.lock();
  }
}

void Driver::throw_if_failed() {
  const Failure* failure = engine_.failures().failure();
  if (failure == nullptr) return;
  {
    // Another thread may still be at work on buffers that the caller will free, and stops at its
    // next turn; adapters stop when they are told.
    std::unique_lock lock(mutex_);
    engine_.stop_transports();
    give_up_callbacks(*failure);
    hand_over_callbacks(lock);
  }
  thrown_.store(true, std::memory_order_relaxed);
  throw Error(*failure);
}

void Driver::throw_if_forked() const {
  if (!process_.is_forked()) return;
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

bool Driver::progress_locked() {
  const bool moved = engine_.progress();
  engine_.tell_ended([this](const Group* group) {
    while (auto ended = callbacks_.extract(group))
      ready_.push_back({std::move(ended.mapped().done), {}});
  });
  return moved;
}

void Driver::give_up_callbacks(const Failure& failure) {
  if (callbacks_.empty()) return;
  engine_.stop_transports();  // whoever is told may free memory that they still move
  for (auto& [group, callback] : callbacks_) ready_.push_back({std::move(callback.done), failure});
  callbacks_.clear();
}

/// The caller of the driver may hold locks, and has a deadline: callbacks are not for it.
void Driver::hand_over_callbacks(std::unique_lock<std::mutex>& lock) {
  if (ready_.empty()) return;
  wake_progress_thread();
  if (progressing_ == 0) run_callbacks(lock);
}

void Driver::run_callbacks(std::unique_lock<std::mutex>& lock) {
  while (!ready_.empty()) {
    Ready callback = std::move(ready_.front());
    ready_.pop_front();
    // It may take long, and may wait for another one.
    if (!stopping_ && engine_.has_work()) wake_progress_thread();
    if (!ready_.empty()) wake_progress_thread();
    lock.unlock();
    callback.done(callback.failure ? &*callback.failure : nullptr);
    callback.done = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

void Driver::on_done(Group& group, std::function<void(const Failure*)> done, int64_t timeout_ns) {
  throw_if_forked();
  std::optional<Failure> failure;
  {
    std::lock_guard lock(mutex_);
    if (group.is_finished()) {
      // It is told below.
    } else if (const Failure* failed = engine_.failures().failure()) {
      engine_.stop_transports();
      failure = *failed;
    } else if (stopping_) {
      failure = has_left().failure();
    } else {
      const int64_t now_ns = clock_.now_ns();
      const int64_t left_ns = std::numeric_limits<int64_t>::max() - now_ns;
      engine_.failures().note_callback(group);
      callbacks_.emplace(
          &group, Callback{std::move(done), timeout_ns, now_ns + std::min(timeout_ns, left_ns)});
      wake_progress_thread();
      return;
    }
  }
  done(failure ? &*failure : nullptr);
}

void Driver::wake_waiters() {
  ++moves_;
  if (sleepers_ == 0) return;
  message_waiters_ = {};  // they will look for themselves
  const uint64_t count = std::exchange(sleepers_, 0);
  [[maybe_unused]] const ssize_t written = ::write(kick_fd_.get(), &count, sizeof(count));
}

/// A message that no operation takes moves nothing, and whoever has polled may have taken the news
/// of it from the sleeper that waits for it.
void Driver::notify_waiters(bool moved) {
  for (size_t channel = 0; channel < message_waiters_.size(); ++channel)
    moved = moved || (message_waiters_[channel] && engine_.has_message(static_cast<int>(channel)));
  if (moved) wake_waiters();
}

void Driver::have_progress_thread() {
  const bool is_wanted = options_.progress_thread || !callbacks_.empty() || !ready_.empty();
  if (!is_wanted || engine_.links().size() == 1 || progressing_ > 0 ||
      (stopping_ && ready_.empty()))
    return;
  progress_.push_back(start_thread(
      "start", "ropewalk-move", [this, self = weak_from_this().lock()] { run_progress_thread(); }));
  ++progressing_;
}

void Driver::wake_progress_thread() noexcept {
  try {
    have_progress_thread();
  } catch (const Error&) {
    return;  // then whoever calls next moves what is left
  }
  work_.notify_one();
}

void Driver::run(Group& group) {
  start_and_drive(group, false, options_.oversubscribed ? 1 : kTurnsUnderLock);
  wait(group, options_.timeout_ns);
}

void Driver::start_and_drive(Group& group, bool in_background, uint32_t turns) {
  throw_if_forked();
  throw_if_failed();
  if (group.is_finished() && group.is_tuned())
    if (const auto awaited = locked([&] { return group.awaited(); }))
      wait(*awaited, options_.timeout_ns);
  std::unique_lock lock(mutex_);
  if (in_background) have_progress_thread();
  throw_if_stopped();
  if (!group.is_finished())
    throw Error(ErrorCode::invalid_argument, "start", "its last run is still under way",
                "wait for it, or make a second plan");
  group.start(engine_);
  for (uint32_t turn = 0; turn < turns && !group.is_finished(); ++turn)
    if (!progress_locked() && turn + 1 < turns) relax();
  wake_waiters();  // these turns may have taken what a sleeper waits for
  // Where it has ended already, bytes that a transport could not take yet must not wait for the
  // next call.
  if ((in_background || group.is_finished()) && engine_.has_work()) wake_progress_thread();
  hand_over_callbacks(lock);
}

bool Driver::test(Group& group) {
  throw_if_forked();
  if (!group.is_finished()) {
    if (stopping_) throw_if_failed();  // says more
    throw_if_stopped();
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) {
      progress_locked();
      engine_.failures().check_stalled(clock_.now_ns());
      wake_waiters();
      hand_over_callbacks(lock);
      lock.unlock();
    }
    throw_if_failed();
  }
  return group.is_finished();
}

template <class Done>
bool Driver::drive_until(const Done& done, WaitState& wait) {
  waiters_.fetch_add(1, std::memory_order_relaxed);
  struct Leave {
    Driver& driver;
    ~Leave() {
      std::lock_guard lock(driver.mutex_);
      driver.waiters_.fetch_sub(1, std::memory_order_relaxed);
      driver.wake_waiters();
      driver.engine_.unmap_deregistered();
      if (driver.engine_.has_work()) driver.wake_progress_thread();
    }
  } leave{*this};
  for (;;) {
    bool moved = false;
    {
      std::unique_lock lock(mutex_);
      // What was under way when this was stopped does not end any more, and may be gone.
      if (!stopping_) moved = progress_locked();
      notify_waiters(moved);
      wait.moves_seen = moves_;
      const bool is_done = done();
      hand_over_callbacks(lock);
      if (is_done) return true;
    }
    throw_if_failed();
    throw_if_stopped();
    if (wait.limit_ns <= 0 || !rest(wait, moved)) return false;
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
  CallersWait wait{*this, {.limit_ns = timeout_ns, .may_fail = true}};
  while (!finish(group, wait.state)) {
    std::lock_guard lock(mutex_);
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
    CallersWait wait{*this, {.limit_ns = options_.timeout_ns, .leaves = true, .may_fail = true}};
    if (engine_.failures().failure() != nullptr) return;
    const bool all_done = drive_until(done, wait.state);
    std::lock_guard lock(mutex_);
    if (all_done) return engine_.end_links();
    if (const Operation* owed = engine_.owed_to_peers())
      engine_.failures().fail_timeout(*owed, options_.timeout_ns);
  } catch (const Error&) {
    return;  // whoever waits for an operation hears of it
  }
}

std::optional<int> Driver::next_sender(int channel, int64_t limit_ns) {
  throw_if_forked();
  throw_if_failed();
  std::optional<int> sender;
  const auto done = [&] {
    sender = engine_.next_sender(channel);
    return sender || std::exchange(interrupted_[static_cast<size_t>(channel)], false);
  };
  CallersWait wait{*this, {.limit_ns = limit_ns, .channel = channel}};
  drive_until(done, wait.state);
  return sender;
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
  else if (wait.channel && wait.limit_ns <= options_.timeout_ns)
    failures.count_receivers(*wait.channel, change);
}

void Driver::poll_control(int64_t now_ns, WaitState& wait) {
  bool ends_soon = wait.ends_soon(now_ns);
  std::lock_guard lock(mutex_);
  if (now_ns - looked_ns_ < kCheckInterval_ns) return;
  looked_ns_ = now_ns;
  if (engine_.failures().failure() == nullptr) engine_.failures().answer_connects();
  engine_.failures().check_stalled(now_ns);
  if (stopping_ || engine_.failures().failure() != nullptr) return;  // groups may be gone
  for (auto& [group, callback] : callbacks_) {
    ends_soon |= callback.deadline_ns - now_ns < question_time_ns(callback.timeout_ns);
    if (now_ns < callback.deadline_ns || group->waiters > 0) continue;
    if (callback.over_since_ns == 0) callback.over_since_ns = now_ns;
    if (needs_answers(now_ns, callback.timeout_ns, now_ns - callback.over_since_ns)) continue;
    if (const Operation* part = group->unfinished_part())
      engine_.failures().fail_timeout(*part, callback.timeout_ns);
  }
  if (ends_soon) engine_.failures().ask_who_waits(now_ns);
}

void Driver::run_progress_thread() {
  if (options_.progress_cpu) bind_thread_to_cpu(*options_.progress_cpu);
  WaitState wait{.background = true};
  std::unique_lock lock(mutex_);
  while (!stopping_ || !ready_.empty()) {
    if (!ready_.empty()) {
      --progressing_;
      run_callbacks(lock);
      ++progressing_;
      continue;  // meanwhile anything may have happened
    }
    const Failure* failure = engine_.failures().failure();
    if (failure != nullptr && !callbacks_.empty()) {
      give_up_callbacks(*failure);
      continue;
    }
    const bool busy = engine_.has_work() && failure == nullptr && !progress_drives_ &&
                      (options_.progress_thread || !callbacks_.empty());
    // A caller that drives wakes this thread when it leaves others' operations unfinished.
    if (!busy || waiters_.load(std::memory_order_relaxed) > 0) {
      // On its way to sleep this thread may have taken the news that they wait for.
      if (busy) wake_waiters();
      work_.wait(lock);
      wait.renew();
      continue;
    }
    progress_drives_ = true;
    const bool moved = progress_locked();
    notify_waiters(moved);
    wait.moves_seen = moves_;
    if (ready_.empty()) {
      lock.unlock();
      rest(wait, moved);
      lock.lock();
    }
    progress_drives_ = false;
  }
}

}  // namespace ropewalk

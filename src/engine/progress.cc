#include "engine/progress.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptors.h"
#include "base/start_thread.h"
#include "engine/driver.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

constexpr int64_t kCheckInterval_ns = 5'000'000;  // between looks at what waits
/// What a rank has sent before it leaves arrives within so long.
constexpr int64_t kLeavesArrive_ns = 1'000'000'000;

/// Whose callbacks this thread runs, the innermost first: one may wait for another.
struct Running {
  const Driver* driver;
  const Running* outer;
};
thread_local const Running* running = nullptr;

}  // namespace

Progress::Progress(Worker& worker, const Clock& clock, int wake_fd, ProgressOptions options)
    : worker_(worker),
      clock_(clock),
      wake_fd_(wake_fd),
      options_(options),
      look_ns_(look_ns_of(options.ranks_per_cpu)),
      check_ns_(look_ns_ > look_ns_of(1) ? look_ns_ : kCheckInterval_ns),
      waiters_fd_(::eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC)) {
  message_waiters_.reserve(2 * kChannels);
  if (waiters_fd_.get() < 0)
    throw Error(ErrorCode::exhausted, "communicator", "cannot make an event descriptor",
                advice_for_descriptors(errno));
}

Progress::~Progress() {
  std::unique_lock lock(mutex_);
  end_threads(lock);
}

void Progress::end_threads(std::unique_lock<std::mutex>& lock) {
  stopping_ = true;
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

bool Progress::turn() {
  const bool moved = worker_.progress();
  worker_.tell_ended([this](const Group* group) {
    while (auto ended = callbacks_.extract(group)) make_ready(ended.mapped(), nullptr);
  });
  return moved;
}

// ---- Callbacks ----

void Progress::make_ready(Callback& callback, const Failure* failure) {
  Driver& driver = callback.driver;
  ++driver.callbacks_ready_;
  ready_.push_back({driver, driver.weak_from_this().lock(), std::move(callback.done),
                    failure == nullptr ? std::nullopt : std::optional(*failure)});
}

void Progress::give_up_callbacks(Driver& driver, const Failure& failure) {
  const auto is_of = [&](const auto& entry) { return &entry.second.driver == &driver; };
  for (auto entry = callbacks_.begin(); entry != callbacks_.end();) {
    if (is_of(*entry)) make_ready(entry->second, &failure);
    entry = is_of(*entry) ? callbacks_.erase(entry) : std::next(entry);
  }
}

bool Progress::give_up_failed() {
  for (auto& [group, callback] : callbacks_)
    if (const Failure* failure = callback.driver.failure();
        failure != nullptr && settle(callback.driver)) {
      give_up_callbacks(callback.driver, *failure);
      return true;
    }
  return false;
}

bool Progress::settle(Driver& driver) {
  if (driver.settled_) return true;
  Engine& engine = driver.engine_;
  const int64_t now_ns = clock_.now_ns();
  if (driver.failed_ns_ == 0) {
    driver.failed_ns_ = now_ns;
    ++unsettled_;
  }
  const auto is_other = [&](const Driver* other) { return other != &driver && !other->settled_; };
  const bool stops_all =
      (engine.is_whole() && std::ranges::none_of(drivers_, is_other)) || worker_.has_failed();
  const int64_t waited_ns = now_ns - driver.failed_ns_;
  if (!stops_all && !engine.quiesce(waited_ns > kLeavesArrive_ns)) {
    if (waited_ns < settle_limit_ns(driver)) return false;
    fail_unsettled(engine, waited_ns);
  }
  if (stops_all || worker_.has_failed()) worker_.stop_transports();
  --unsettled_;
  return driver.settled_ = true;
}

void Progress::restart(const std::vector<int>& departed) {
  const std::lock_guard lock(mutex_);
  for (Driver* driver : drivers_) {
    if (std::exchange(driver->settled_, true)) continue;
    if (std::exchange(driver->failed_ns_, clock_.now_ns()) != 0) --unsettled_;
  }
  worker_.restart(departed);
  wake_waiters();
}

/// A transport may take so long to tell that a peer is lost, and a rank to tell that one is
/// stopped.
int64_t Progress::settle_limit_ns(const Driver& driver) const {
  int64_t silence_ns = 0;
  for (const Transport* transport : worker_.connections().transports())
    silence_ns = std::max(silence_ns, transport->capabilities().silence_max_ns);
  return std::max({driver.timeout_ns_, options_.timeout_ns, silence_ns});
}

void Progress::fail_unsettled(const Engine& engine, int64_t waited_ns) {
  const int own = worker_.connections().rank();
  const int peer = engine.links().in_job(engine.pending_peer(true));
  const int number = worker_.rank_in_epoch(peer);
  const std::string who = peer < 0 ? "a transport" : fmt::format("rank {}", number);
  worker_.fail({ErrorCode::timeout, engine.is_whole() ? "leave" : "part",
                fmt::format("rank {} has given up calls that were under way, and {} has not been "
                            "done with them for {:.3g} s",
                            worker_.rank_in_epoch(own), who, static_cast<double>(waited_ns) / 1e9),
                peer < 0 ? "is the network slow?" : fmt::format("is rank {} stopped?", number), own,
                peer});
}

void Progress::settle_all() {
  for (Driver* driver : drivers_)
    if (driver->failed_ns_ != 0) settle(*driver);
}

/// The caller of the driver may hold locks, and has a deadline: callbacks are not for it.
void Progress::hand_over_callbacks(std::unique_lock<std::mutex>& lock) {
  if (ready_.empty()) return;
  wake_progress_thread();
  if (progressing_ == 0) run_callbacks(lock);
}

void Progress::run_callbacks(std::unique_lock<std::mutex>& lock) {
  while (!ready_.empty()) {
    Ready callback = std::move(ready_.front());
    ready_.pop_front();
    // It may take long, and may wait for another one.
    if (!stopping_ && worker_.has_work()) wake_progress_thread();
    if (!ready_.empty()) wake_progress_thread();
    lock.unlock();
    const Running own{&callback.driver, running};
    running = &own;
    callback.done(callback.failure ? &*callback.failure : nullptr);
    callback.done = nullptr;  // what it holds goes without the lock
    running = own.outer;
    lock.lock();
    --callback.driver.callbacks_ready_;
    callbacks_run_.notify_all();
    lock.unlock();
    callback.keeps.reset();  // it may be the last
    lock.lock();
  }
}

void Progress::await_callbacks(const Driver& driver, std::unique_lock<std::mutex>& lock) {
  int own = 0;
  for (const Running* it = running; it != nullptr; it = it->outer) own += it->driver == &driver;
  callbacks_run_.wait(lock, [&] { return driver.callbacks_ready_ <= own; });
}

void Progress::check_callback(const Group& group, Callback& callback, int64_t now_ns) {
  Driver& driver = callback.driver;
  FailureDetector& failures = driver.engine_.failures();
  if (driver.is_stopped() || failures.failure() != nullptr) return;  // groups may be gone
  const int64_t question_ns = question_time_ns(callback.timeout_ns);
  if (callback.deadline_ns - now_ns < question_ns) failures.ask_who_waits(now_ns);
  if (now_ns < callback.deadline_ns || group.waiters > 0) return;
  if (callback.over_since_ns == 0) callback.over_since_ns = now_ns;
  if (driver.needs_answers(now_ns, callback.timeout_ns, now_ns - callback.over_since_ns)) return;
  if (const Operation* part = group.unfinished_part())
    failures.fail_timeout(*part, callback.timeout_ns);
}

void Progress::forget(const Driver& driver) {
  if (driver.failed_ns_ != 0 && !driver.settled_) --unsettled_;
  std::erase(drivers_, &driver);
  std::erase_if(message_waiters_,
                [&](const auto& waiter) { return waiter.first == &driver.engine_; });
}

// ---- Waking ----

void Progress::wake_waiters() {
  ++wakes_;
  if (blocked_ == 0) return;
  message_waiters_.clear();  // they will look for themselves
  const uint64_t count = std::exchange(blocked_, 0);
  [[maybe_unused]] const ssize_t written = ::write(waiters_fd_.get(), &count, sizeof(count));
}

/// A message that no operation takes moves nothing, and whoever has polled may have taken the news
/// of it from the blocked thread that waits for it.
void Progress::notify_waiters(bool moved) {
  moved = moved || worker_.has_failed() ||
          std::ranges::any_of(message_waiters_, [](const auto& waiter) {
            return waiter.first->has_message(waiter.second);
          });
  if (moved) wake_waiters();
}

void Progress::have_progress_thread() {
  const bool is_wanted =
      options_.progress_thread || !callbacks_.empty() || !ready_.empty() || unsettled_ > 0;
  if (!is_wanted || worker_.connections().size() == 1 || progressing_ > 0 ||
      (stopping_ && ready_.empty()))
    return;
  progress_.push_back(start_thread(
      "start", "ropewalk-move", [this, self = weak_from_this().lock()] { run_progress_thread(); }));
  ++progressing_;
}

void Progress::wake_progress_thread() noexcept {
  try {
    have_progress_thread();
  } catch (const Error&) {
    return;  // then whoever calls next moves what is left
  }
  work_.notify_one();
}

void Progress::poll_control(int64_t now_ns, WaitState& wait) {
  const bool ends_soon = wait.driver != nullptr && wait.ends_soon(now_ns);
  std::lock_guard lock(mutex_);
  if (now_ns - looked_ns_ < kCheckInterval_ns) return;
  looked_ns_ = now_ns;
  const bool checks = now_ns - checked_ns_ >= check_ns_;
  if (checks) checked_ns_ = now_ns;
  bool answered = false;
  for (Driver* driver : drivers_) {
    FailureDetector& failures = driver->engine_.failures();
    if (failures.failure() == nullptr && !std::exchange(answered, true)) failures.answer_connects();
    if (checks) failures.check_stalled(now_ns);
  }
  for (auto& [group, callback] : callbacks_) check_callback(*group, callback, now_ns);
  if (!ends_soon || wait.driver->is_stopped() || wait.driver->failure() != nullptr) return;
  wait.driver->engine_.failures().ask_who_waits(now_ns);
}

void Progress::run_progress_thread() {
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
    if (unsettled_ > 0) settle_all();
    // The control thread reports failures without the lock, and wakes who rests, not who sleeps
    // here: one that comes after this look is found after the next turn.
    const bool has_failed = worker_.has_failed();
    if (give_up_failed()) continue;
    const bool busy = (worker_.has_work() || unsettled_ > 0) && !progress_drives_ && !has_failed &&
                      (options_.progress_thread || !callbacks_.empty() || unsettled_ > 0);
    // A caller that drives wakes this thread when it leaves others' operations unfinished.
    if (!busy || waiters_.load(std::memory_order_relaxed) > 0) {
      // On its way to sleep this thread may have taken the news that they wait for.
      if (busy) wake_waiters();
      work_.wait(lock);
      wait.renew();
      continue;
    }
    progress_drives_ = true;
    const bool moved = turn();
    notify_waiters(moved);
    wait.wakes_seen = wakes_;
    if (ready_.empty()) {
      lock.unlock();
      rest(wait, moved);
      lock.lock();
    }
    progress_drives_ = false;
  }
}

}  // namespace ropewalk

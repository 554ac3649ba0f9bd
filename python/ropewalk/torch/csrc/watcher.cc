#include "watcher.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <utility>

namespace ropewalk::pytorch {
namespace {

constexpr const char* kDestroyed = "the process group was destroyed before the call ended";
/// A call is waited for while it is young: its end is likely to be near, and soon noticed so.
constexpr auto kYoung = std::chrono::milliseconds(50);
constexpr auto kSlice = std::chrono::milliseconds(2);
/// Between looks at older ones.
constexpr auto kNap = std::chrono::milliseconds(5);
constexpr size_t kExpectedMin = 64;

}  // namespace

void CallbackThreads::run(std::function<void()> callback) {
  std::lock_guard lock(state_->mutex);
  state_->callbacks.push_back(std::move(callback));
  if (state_->idle < state_->callbacks.size())
    threads_.emplace_back([state = state_] { work(*state); });
  state_->changed.notify_one();
}

void CallbackThreads::stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    threads = std::move(threads_);
  }
  state_->changed.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
  }
}

void CallbackThreads::work(State& state) {
  c10::setThreadName("ropewalk-then");
  std::unique_lock lock(state.mutex);
  for (;;) {
    ++state.idle;
    state.changed.wait(lock, [&] { return state.stopping || !state.callbacks.empty(); });
    --state.idle;
    if (state.callbacks.empty()) return;
    auto callback = std::move(state.callbacks.front());
    state.callbacks.pop_front();
    lock.unlock();
    callback();
    callback = nullptr;  // what it holds goes without the lock
    lock.lock();
  }
}

void Watcher::watch(std::shared_ptr<PendingCall> call) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      arriving_.push_back({std::move(call), Clock::now()});
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
  }
  if (!call) return changed_.notify_one();
  if (const auto announce = call->give_up(kDestroyed)) announce();
}

void Watcher::expect(std::weak_ptr<PendingCall> call) {
  std::lock_guard lock(mutex_);
  if (expected_.size() >= expected_max_) {
    std::erase_if(expected_, [](const auto& one) { return one.expired(); });
    expected_max_ = std::max(kExpectedMin, 2 * expected_.size());
  }
  expected_.push_back(std::move(call));
}

void Watcher::stop(std::chrono::milliseconds limit, std::function<void()> interrupt) {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(stopping_, true)) {
      stop_at_ = Clock::now() + limit;
      interrupt_ = std::move(interrupt);
      for (const auto& expected : expected_)
        if (auto call = expected.lock()) arriving_.push_back({std::move(call), Clock::now()});
      if (!arriving_.empty() && !thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    thread = std::move(thread_);
  }
  changed_.notify_one();
  if (thread.joinable()) thread.join();
  callbacks_.stop();
}

void Watcher::run() {
  c10::setThreadName("ropewalk-watch");
  std::vector<Watched> watched;
  std::unique_lock lock(mutex_);
  for (;;) {
    std::ranges::move(std::exchange(arriving_, {}), std::back_inserter(watched));
    const bool stopped = stopping_;
    if (stopped && (watched.empty() || Clock::now() >= stop_at_)) break;
    if (watched.empty()) {
      changed_.wait(lock, [this] { return stopping_ || !arriving_.empty(); });
      continue;
    }
    lock.unlock();
    const bool ended = poll_all(watched);
    const auto young = std::ranges::find_if(
        watched, [now = Clock::now()](const Watched& w) { return now - w.since < kYoung; });
    if (!ended && young != watched.end()) {
      if (auto announcement = young->call->poll(kSlice)) {
        finish(std::move(*announcement));
        watched.erase(young);
      }
    }
    const bool nap = !ended && young == watched.end();
    lock.lock();
    if (nap)
      changed_.wait_for(lock, kNap,
                        [this, stopped] { return stopping_ != stopped || !arriving_.empty(); });
  }
  lock.unlock();
  if (!watched.empty() && interrupt_) interrupt_();
  for (Watched& left : watched) finish(left.call->give_up(kDestroyed));
}

bool Watcher::poll_all(std::vector<Watched>& watched) {
  const auto now = Clock::now();
  return std::erase_if(watched, [&](Watched& one) {
           auto announcement = one.call->poll();
           // The deadline is that of the call; nobody else may be there to see to it.
           if (!announcement && now - one.since >= one.call->timeout())
             announcement = one.call->expire(
                 std::chrono::duration_cast<std::chrono::milliseconds>(now - one.since));
           if (!announcement) return false;
           finish(std::move(*announcement));
           return true;
         }) > 0;
}

void Watcher::finish(PendingCall::Announcement announcement) {
  if (announcement) callbacks_.run(std::move(announcement));
}

}  // namespace ropewalk::pytorch

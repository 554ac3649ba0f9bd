#include "watcher.h"

#include <c10/util/Exception.h>

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

}  // namespace

void CallbackThreads::run(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  callbacks_.push_back(std::move(callback));
  if (idle_ < callbacks_.size()) threads_.emplace_back([this] { work(); });
  changed_.notify_one();
}

void CallbackThreads::stop() {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads = std::move(threads_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) {
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
  }
}

void CallbackThreads::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !callbacks_.empty(); });
    --idle_;
    if (callbacks_.empty()) return;
    auto callback = std::move(callbacks_.front());
    callbacks_.pop_front();
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

void Watcher::stop(std::chrono::milliseconds limit) {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(stopping_, true)) stop_at_ = Clock::now() + limit;
    thread = std::move(thread_);
  }
  changed_.notify_one();
  if (thread.joinable()) thread.join();
  callbacks_.stop();
}

void Watcher::run() {
  std::vector<Watched> watched;
  std::unique_lock lock(mutex_);
  for (;;) {
    std::ranges::move(std::exchange(arriving_, {}), std::back_inserter(watched));
    const bool late = stopping_ && Clock::now() >= stop_at_;
    if (stopping_ && (watched.empty() || late)) break;
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
    if (nap) changed_.wait_for(lock, kNap, [this] { return stopping_ || !arriving_.empty(); });
  }
  lock.unlock();
  for (Watched& left : watched) finish(left.call->give_up(kDestroyed));
}

bool Watcher::poll_all(std::vector<Watched>& watched) {
  const auto now = Clock::now();
  return std::erase_if(watched, [&](Watched& one) {
           auto announcement = one.call->poll();
           // The deadline is that of the call; nobody else may be there to see to it.
           if (!announcement && now - one.since >= one.call->timeout())
             announcement = one.call->wait(std::chrono::milliseconds(0));
           if (!announcement) return false;
           finish(std::move(*announcement));
           return true;
         }) > 0;
}

void Watcher::finish(PendingCall::Announcement announcement) {
  if (announcement) callbacks_.run(std::move(announcement));
}

}  // namespace ropewalk::pytorch

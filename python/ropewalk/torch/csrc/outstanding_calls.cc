#include "outstanding_calls.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <algorithm>
#include <utility>

namespace ropewalk::pytorch {
namespace {

constexpr const char* kDestroyed =
    "the process group was destroyed, or made anew, before the call ended";
constexpr size_t kCallsMin = 64;

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

void OutstandingCalls::add(const std::shared_ptr<PendingCall>& call) {
  {
    std::lock_guard lock(mutex_);
    if (calls_.size() >= calls_max_) {
      std::erase_if(calls_, [](const auto& one) { return one.expired(); });
      calls_max_ = std::max(kCallsMin, 2 * calls_.size());
    }
    calls_.push_back(call);
    if (!stopping_) return;
  }
  call->fail({ErrorCode::aborted, call->name(), kDestroyed});
}

void OutstandingCalls::receive_from_any(const std::shared_ptr<PendingCall>& call,
                                        const Call& receive, at::Tensor tensor) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;  // `add` has ended it
    const auto deadline = Clock::now() + call->info().timeout;
    from_any_.push_back({call, receive, std::move(tensor), deadline});
    call->follow();
    if (!finder_.joinable()) finder_ = std::thread([this] { find_senders(); });
  }
  changed_.notify_one();
  comm_.interrupt_next_sender();  // the finder may be waiting for longer than this one does
}

void OutstandingCalls::find_senders() {
  c10::setThreadName("ropewalk-any");
  for (;;) {
    std::vector<FromAny> ended;  // goes without the lock
    std::shared_ptr<PendingCall> soonest;
    Clock::time_point deadline;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return finder_stops_ || !from_any_.empty(); });
      if (finder_stops_) return;
      const auto gone = std::ranges::stable_partition(
          from_any_, [](const FromAny& one) { return !one.call->has_ended(); });
      std::ranges::move(gone, std::back_inserter(ended));
      from_any_.erase(gone.begin(), gone.end());
      if (from_any_.empty()) continue;
      const auto first = std::ranges::min_element(from_any_, {}, &FromAny::deadline);
      soonest = first->call;
      deadline = first->deadline;
    }
    try {
      const auto left = std::max(deadline - Clock::now(), Clock::duration(0));
      if (const std::optional<int> sender = comm_.next_sender(left))
        begin_first(*sender);
      else if (Clock::now() >= deadline)
        soonest->fail_without_sender(soonest->info().timeout);
    } catch (const Error& error) {
      for (const FromAny& one : take_from_any()) one.call->fail(error);
    }
  }
}

/// Receives get the messages in the order in which they were posted.
void OutstandingCalls::begin_first(int sender) {
  std::unique_lock lock(mutex_);
  FromAny first;
  std::vector<FromAny> ended;  // goes without the lock
  for (;;) {
    if (from_any_.empty()) return;  // the message waits for the next one
    first = std::move(from_any_.front());
    from_any_.pop_front();
    if (first.call->claim()) break;
    ended.push_back(std::move(first));
  }
  lock.unlock();
  first.receive.root = sender;
  try {
    first.call->begin(
        comm_.start(first.receive), [tensor = std::move(first.tensor)] {}, sender);
  } catch (const Error& error) {
    first.call->fail(error);
  }
}

std::deque<OutstandingCalls::FromAny> OutstandingCalls::take_from_any() {
  std::lock_guard lock(mutex_);
  return std::exchange(from_any_, {});
}

void OutstandingCalls::stop(std::chrono::milliseconds limit,
                            const std::function<void()>& interrupt) {
  const auto until = Clock::now() + limit;
  std::vector<std::shared_ptr<PendingCall>> left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& one : std::exchange(calls_, {}))
      if (auto call = one.lock()) left.push_back(std::move(call));
  }
  for (const auto& call : left)
    if (!call->has_ended()) call->wait_for(std::max(until - Clock::now(), Clock::duration(0)));
  std::erase_if(left, [](const auto& call) { return call->has_ended(); });
  if (!left.empty() && interrupt) interrupt();
  for (const auto& call : left) call->fail({ErrorCode::aborted, call->name(), kDestroyed});
  std::thread finder;
  {
    std::lock_guard lock(mutex_);
    finder_stops_ = true;
    finder = std::move(finder_);
  }
  changed_.notify_one();
  if (finder.joinable()) {
    comm_.interrupt_next_sender();
    finder.join();
  }
  callbacks_.stop();
}

}  // namespace ropewalk::pytorch

#include "pending_call.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "outstanding_calls.h"

namespace ropewalk::pytorch {

namespace {

/// PyTorch gives every group a timeout of its own, so ROPEWALK_TIMEOUT has no say here.
std::string timeout_advice(const Failure& failure) {
  const std::string question = failure.peer < 0 ? failure.advice
                                                : c10::str("is rank ", failure.peer,
                                                           " still computing, or in another call?");
  return c10::str(question, question.empty() ? "" : " ",
                  "init_process_group(timeout=...) or new_group(timeout=...) sets the limit");
}

uint64_t next_key() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

std::string call_name(std::string_view title) {
  constexpr std::string_view kPrefix = "ropewalk:";
  return std::string(title.starts_with(kPrefix) ? title.substr(kPrefix.size()) : title);
}

std::exception_ptr as_backend_error(const Error& error, int rank, const char* title) {
  Failure failure = error.failure();
  if (failure.rank < 0) failure.rank = rank;
  if (failure.code == ErrorCode::timeout) failure.advice = timeout_advice(failure);
  std::string text = failure.text();
  if (title != nullptr && text.find(call_name(title)) == std::string::npos)
    text.insert(0, call_name(title) + ": ");
  try {
    if (title != nullptr && error.code() == ErrorCode::invalid_argument)
      C10_THROW_ERROR(ValueError, text);
    C10_THROW_ERROR(DistBackendError, text);
  } catch (...) {
    return std::current_exception();
  }
}

PendingCall::PendingCall(const std::shared_ptr<OutstandingCalls>& calls,
                         std::vector<at::Tensor> outputs, const WorkInfo& info,
                         std::function<void()> record_end)
    : outputs_(std::move(outputs)),
      info_(info),
      key_(next_key()),
      calls_(calls),
      hooks_(calls->hooks()),
      record_end_(std::move(record_end)) {}

std::string PendingCall::name() const {
  return call_name(info_.title);
}

bool PendingCall::has_ended() const {
  std::lock_guard lock(mutex_);
  return ended_;
}

std::exception_ptr PendingCall::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

int PendingCall::source() const {
  std::lock_guard lock(mutex_);
  return source_;
}

bool PendingCall::claim() {
  std::lock_guard lock(mutex_);
  return !ending_ && !std::exchange(claimed_, true);
}

void PendingCall::begin(Work work, std::function<void()> finish, int source) {
  bool follows = false;
  {
    std::lock_guard lock(mutex_);
    finish_ = std::move(finish);
    work_ = std::move(work);
    source_ = source;
    follows = followed_.has_value();
  }
  changed_.notify_all();
  if (follows) follow();
}

template <class Step>
PendingCall::Future PendingCall::attempt(const Step& step) {
  try {
    if (!step()) return {};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::timeout) hooks_->tell_of_abort();
    return end_first(as_backend_error(error, info_.rank, info_.title));
  } catch (...) {
    return end_first(std::current_exception());
  }
  return end_first(nullptr);
}

void PendingCall::run(const std::function<void()>& call) {
  settle(attempt([&] {
    call();
    return true;
  }));
}

void PendingCall::follow() {
  const auto now = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (!followed_) followed_ = now;
  if (!work_) return;  // `begin` sees to it
  const auto timeout = std::max(info_.timeout - (now - *followed_), std::chrono::nanoseconds(0));
  lock.unlock();
  // This runs in a thread of the communicator's, which others stand in for meanwhile.
  const auto done = [self = shared_from_this()](const Failure* failure) {
    self->settle(self->attempt([&]() -> bool {
      if (failure != nullptr) throw Error(*failure);
      return true;
    }));
  };
  settle_aside(attempt([&] {
    work_->on_done(done, timeout);
    return false;
  }));
}

Work* PendingCall::begun_within(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  const auto is_there = [this] { return ended_ || work_; };
  if (!changed_.wait_for(lock, limit, is_there) && claimed_) changed_.wait(lock, is_there);
  return ended_ || !work_ ? nullptr : &*work_;
}

void PendingCall::test() {
  if (Work* work = begun_within({})) settle(attempt([work] { return work->test(); }));
}

void PendingCall::wait(std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  if (Work* work = begun_within(timeout)) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    settle(attempt([&] {
      work->wait(std::max(timeout - waited, std::chrono::milliseconds(0)));
      return true;
    }));
  } else {
    fail_without_sender(timeout);
  }
  // Another thread may be about to begin or to end it.
  std::unique_lock lock(mutex_);
  if (claimed_ && !ended_ && !ending_) {
    lock.unlock();
    return wait(std::chrono::milliseconds(0));
  }
  changed_.wait(lock, [this] { return ended_; });
}

void PendingCall::wait_for(std::chrono::nanoseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  if (Work* work = begun_within(limit))
    settle_aside(attempt(
        [&] { return work->wait_for(limit - (std::chrono::steady_clock::now() - begin)); }));
  std::unique_lock lock(mutex_);
  if (ending_) changed_.wait(lock, [this] { return ended_; });
}

PendingCall::Future PendingCall::end_first(std::exception_ptr error) {
  std::function<void()> finish, record_end;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ending_, true)) return {};
    if (!error) finish = std::exchange(finish_, nullptr);
    record_end = std::exchange(record_end_, nullptr);
  }
  try {
    if (finish) finish();
  } catch (...) {
    error = std::current_exception();
  }
  const bool has_succeeded = !error;
  Future future;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    error_ = std::move(error);
    future = future_;
  }
  changed_.notify_all();
  if (has_succeeded) hooks_->tell_of_completion(key_);
  if (record_end) record_end();
  return future;
}

void PendingCall::fail(const Error& error) {
  settle_aside(attempt([&]() -> bool { throw Error(error); }));
}

void PendingCall::fail_without_sender(std::chrono::milliseconds waited) {
  {
    std::lock_guard lock(mutex_);
    if (ending_ || std::exchange(claimed_, true)) return;
  }
  fail({ErrorCode::timeout, "recv",
        c10::str("timeout after ", static_cast<double>(waited.count()) / 1e3,
                 " s: no rank has sent a message"),
        "does another rank call send?"});
}

c10::intrusive_ptr<c10::ivalue::Future> PendingCall::future() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const bool ended = ended_;  // else whoever ends it settles it
  lock.unlock();
  if (ended)
    settle(future_);
  else
    follow();
  return future_;
}

void PendingCall::settle(const Future& future) const {
  if (!future) return;
  if (const auto failed = error())
    future->setError(failed);
  else
    future->markCompleted(c10::IValue(outputs_));
}

void PendingCall::settle_aside(Future future) {
  if (!future) return;
  if (const auto calls = calls_.lock())
    calls->run_callback(
        [self = shared_from_this(), future = std::move(future)] { self->settle(future); });
  else
    settle(future);
}

}  // namespace ropewalk::pytorch

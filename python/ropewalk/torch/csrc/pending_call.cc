#include "pending_call.h"

#include <c10/util/Exception.h>

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

void PendingCall::begin(Work work, std::function<void()> finish, int source) {
  bool follows = false;
  {
    std::lock_guard lock(mutex_);
    work_ = std::move(work);
    finish_ = std::move(finish);
    source_ = source;
    follows = std::exchange(follows_, false);
  }
  changed_.notify_all();
  if (follows) follow();
}

/// `step` returns whether the call has ended.
template <class Step>
void PendingCall::attempt(const Step& step) {
  try {
    if (step()) end();
  } catch (const Error& error) {
    fail(error);
  } catch (...) {
    end(std::current_exception());
  }
}

void PendingCall::run(const std::function<void()>& call) {
  attempt([&] {
    call();
    return true;
  });
}

void PendingCall::follow() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(follows_, true) || !work_) return;
  }
  attempt([this] {
    work_->on_done([self = shared_from_this()](const Failure* failure) { self->on_done(failure); },
                   info_.timeout);
    return false;
  });
}

/// What hangs on the future may take long and may wait for other calls. A thread of the program
/// that comes here while it waits for another call must not be held up by it.
void PendingCall::on_done(const Failure* failure) {
  std::exception_ptr error;
  if (failure != nullptr) error = as_backend_error(Error(*failure), info_.rank, info_.title);
  if (!end_first(error)) return;
  const auto calls = calls_.lock();
  if (calls && !is_progress_thread())
    calls->run_callback([self = shared_from_this()] { self->settle(); });
  else
    settle();
}

Work* PendingCall::begun_within(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [this] { return ended_ || work_; });
  return ended_ || !work_ ? nullptr : &*work_;
}

void PendingCall::test() {
  if (Work* work = begun_within({})) attempt([work] { return work->test(); });
}

void PendingCall::wait(std::chrono::milliseconds timeout) {
  const auto begin = std::chrono::steady_clock::now();
  if (Work* work = begun_within(timeout)) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin);
    attempt([&] {
      work->wait(timeout - waited);
      return true;
    });
  } else if (!has_ended()) {
    fail_without_sender(timeout);
  }
  // Another thread may be about to end it.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ended_; });
}

void PendingCall::wait_for(std::chrono::nanoseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  if (Work* work = begun_within(limit))
    attempt([&] { return work->wait_for(limit - (std::chrono::steady_clock::now() - begin)); });
}

void PendingCall::end(std::exception_ptr error) {
  if (end_first(std::move(error))) settle();
}

bool PendingCall::end_first(std::exception_ptr error) {
  std::function<void()> finish, record_end;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ending_, true)) return false;
    finish = std::exchange(finish_, nullptr);
    record_end = std::exchange(record_end_, nullptr);
  }
  try {
    if (finish && !error) finish();
  } catch (...) {
    error = std::current_exception();
  }
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    error_ = std::move(error);
  }
  changed_.notify_all();
  if (record_end) record_end();
  return true;
}

void PendingCall::fail(const Error& error) {
  end(as_backend_error(error, info_.rank, info_.title));
}

void PendingCall::fail_without_sender(std::chrono::milliseconds waited) {
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
    settle();
  else
    follow();
  return future_;
}

void PendingCall::settle() const {
  std::unique_lock lock(mutex_);
  const auto future = future_;
  const auto error = error_;
  lock.unlock();
  if (future && error)
    future->setError(error);
  else if (future)
    future->markCompleted(c10::IValue(outputs_));
}

}  // namespace ropewalk::pytorch

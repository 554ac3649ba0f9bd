#include "pending_call.h"

#include <c10/util/Exception.h>

#include <string_view>
#include <utility>

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

PendingCall::PendingCall(std::unique_ptr<Pending> pending, std::vector<at::Tensor> outputs,
                         const WorkInfo& info, std::function<void()> record_end)
    : outputs_(std::move(outputs)),
      info_(info),
      pending_(std::move(pending)),
      record_end_(std::move(record_end)) {
  if (!pending_) end(-1, nullptr);
}

bool PendingCall::has_ended() const {
  std::lock_guard lock(state_);
  return ended_;
}

std::exception_ptr PendingCall::error() const {
  std::lock_guard lock(state_);
  return error_;
}

int PendingCall::source() const {
  std::lock_guard lock(state_);
  return source_;
}

/// Under turn_. `step` throws, or says whether the call has ended.
template <class Step>
std::optional<PendingCall::Announcement> PendingCall::advance(std::unique_lock<std::mutex> turn,
                                                              const Step& step) {
  if (!pending_) return Announcement();
  std::exception_ptr error;
  try {
    if (!step(*pending_)) return {};
  } catch (const Error& failure) {
    error = as_backend_error(failure, info_.rank, info_.title);
  } catch (...) {
    error = std::current_exception();
  }
  // Tensors go without locks: Python's lock may be needed for them.
  const auto done = std::move(pending_);
  auto announcement = end(done->source(), error);
  turn.unlock();
  return announcement;
}

std::optional<PendingCall::Announcement> PendingCall::poll(std::chrono::nanoseconds limit) {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn.owns_lock()) return {};
  return advance(std::move(turn), [limit](Pending& pending) {
    return limit.count() == 0 ? pending.test() : pending.wait_for(limit);
  });
}

PendingCall::Announcement PendingCall::wait(std::chrono::milliseconds timeout) {
  return *advance(std::unique_lock(turn_), [timeout](Pending& pending) {
    pending.wait(timeout);
    return true;
  });
}

std::optional<PendingCall::Announcement> PendingCall::expire(std::chrono::milliseconds waited) {
  std::unique_lock turn(turn_, std::try_to_lock);
  if (!turn.owns_lock()) return {};
  return advance(std::move(turn), [waited](Pending& pending) {
    pending.expire(waited);
    return true;
  });
}

PendingCall::Announcement PendingCall::give_up(const char* reason) {
  return *advance(std::unique_lock(turn_), [&](Pending&) -> bool {
    throw Error(ErrorCode::aborted, call_name(info_.title), reason);
  });
}

PendingCall::Announcement PendingCall::end(int source, std::exception_ptr error) {
  std::function<void()> record_end;
  Announcement announcement;
  {
    std::lock_guard lock(state_);
    ended_ = true;
    error_ = std::move(error);
    source_ = source;
    record_end = std::exchange(record_end_, nullptr);
    if (future_) announcement = [self = shared_from_this()] { self->settle(*self->future_); };
  }
  if (record_end) record_end();
  return announcement;
}

c10::intrusive_ptr<c10::ivalue::Future> PendingCall::future() {
  std::unique_lock lock(state_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  const bool ended = ended_;  // else end() announces it
  lock.unlock();
  if (ended) settle(*future_);
  return future_;
}

void PendingCall::settle(c10::ivalue::Future& future) const {
  if (const auto failed = error())
    future.setError(failed);
  else
    future.markCompleted(c10::IValue(outputs_));
}

}  // namespace ropewalk::pytorch

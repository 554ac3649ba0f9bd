#include "pending_call.h"

#include <c10/util/Exception.h>

#include <string_view>
#include <utility>

namespace ropewalk::pytorch {

std::exception_ptr as_backend_error(const Error& error, const char* title) {
  std::string text = error.what();
  if (title != nullptr) {
    const std::string name(std::string_view(title).substr(std::string_view("ropewalk:").size()));
    if (text.find(name) == std::string::npos) text.insert(0, name + ": ");
  }
  try {
    C10_THROW_ERROR(DistBackendError, text);
  } catch (...) {
    return std::current_exception();
  }
}

PendingCall::PendingCall(std::unique_ptr<Pending> pending, std::vector<at::Tensor> outputs,
                         const char* title, std::chrono::milliseconds timeout,
                         std::function<void()> record_end)
    : outputs_(std::move(outputs)),
      title_(title),
      timeout_(timeout),
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
    error = as_backend_error(failure, title_);
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

PendingCall::Announcement PendingCall::give_up(const char* reason) {
  return *advance(std::unique_lock(turn_), [reason](Pending&) -> bool {
    throw Error(ErrorCode::aborted, "process group", reason);
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

#include "communicator/committed.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>

#include "communicator/impl.h"
#include "communicator/next_epoch.h"

namespace ropewalk {
namespace {

constexpr const char* kName = "all_reduce_committed";

void run_and_wait(Communicator::Impl& impl, const Call& call, int64_t timeout_ns) {
  const auto group = impl.start(std::span(&call, 1), false);
  impl.driver->wait(*group, timeout_ns);
}

/// After a failure: whether all that are left have sum `number`.
bool all_have(const Communicator::Impl& impl, uint32_t number, int64_t timeout_ns) {
  try {
    return settle(impl, number, impl.session->clock.now_ns() + timeout_ns);
  } catch (const Error& error) {
    Failure failure = error.failure();
    failure.reason += "; whether they have the sum this rank cannot know, its own data are intact";
    throw Error(failure);
  }
}

}  // namespace

// A call that is refused, or finds the epoch ended, has sent nothing: nobody can pass its barrier.
void CommittedCalls::run(Communicator::Impl& impl, const Call& call, int64_t timeout_ns) {
  check_may_agree(impl, kName);
  if (call.collective != Collective::all_reduce)
    throw Error(ErrorCode::invalid_argument, kName,
                fmt::format("a call of {} cannot be committed", name_of(call.collective)),
                "give an all_reduce");
  impl.check(std::span(&call, 1));
  // Of nothing there is nothing to commit, and it would end without the others.
  if (call.count == 0) return run_and_wait(impl, call, timeout_ns);
  std::lock_guard lock(mutex_);
  const uint32_t number = impl.epoch->sums_to_commit + 1;
  std::optional<Error> failed;
  try {
    sum(impl, call, timeout_ns);
    impl.epoch->sums_to_commit = number;
    run_and_wait(impl, impl.barrier_call(), timeout_ns);
  } catch (const Error& error) {
    if (impl.monitor().failure() == nullptr) throw;  // refused
    failed = error;
  }
  if (failed && !all_have(impl, number, timeout_ns)) throw *failed;
  std::memcpy(call.out, memory_->data(), call.count * size_of(call.type));
}

void CommittedCalls::sum(Communicator::Impl& impl, const Call& call, int64_t timeout_ns) {
  reserve(impl, call.count * size_of(call.type));
  Call into_memory = call;
  into_memory.out = memory_->data();
  run_and_wait(impl, into_memory, timeout_ns);
}

void CommittedCalls::reserve(Communicator::Impl& impl, size_t bytes) {
  if (memory_ && memory_->bytes() >= bytes) return;
  memory_.reset();
  try {
    memory_ = impl.allocate(bytes);
  } catch (const Error& error) {
    throw impl.lacks(error);
  }
}

}  // namespace ropewalk

#include "work.h"

#include <utility>

namespace ropewalk::pytorch {
namespace {

std::optional<std::vector<at::Tensor>> for_profiler(const std::vector<at::Tensor>& inputs) {
  if (inputs.empty()) return std::nullopt;
  return inputs;
}

}  // namespace

PendingWork::PendingWork(const WorkInfo& info, const Membership::Parts& parts,
                         std::unique_ptr<Pending> pending, const std::vector<at::Tensor>& inputs,
                         std::vector<at::Tensor> outputs)
    : Work(info.rank, info.type, info.title, for_profiler(inputs)),
      group_(parts.group),
      watcher_(parts.watcher),
      sequence_(info.sequence),
      call_(std::make_shared<PendingCall>(std::move(pending), std::move(outputs), info,
                                          std::exchange(recordFunctionEndCallback_, nullptr))) {
  if (!call_->has_ended()) parts.watcher->expect(call_);
}

PendingWork::~PendingWork() {
  if (group_->process.is_forked()) {
    abandon(std::move(call_));
    return;
  }
  if (!call_->has_ended()) watch();
}

void PendingWork::watch() {
  if (std::exchange(watched_, true)) return;
  if (const auto watcher = watcher_.lock()) watcher->watch(call_);
}

bool PendingWork::isCompleted() {
  group_->process.require(rank_, "is_completed");
  if (const auto announcement = call_->poll(); announcement && *announcement) (*announcement)();
  return call_->has_ended();
}

bool PendingWork::wait(std::chrono::milliseconds timeout) {
  group_->process.require(rank_, "wait");
  const auto announce = call_->wait(timeout == kNoTimeout ? call_->timeout() : timeout);
  if (announce) announce();
  if (const auto error = call_->error()) std::rethrow_exception(error);
  return true;
}

void PendingWork::abort() {
  group_->process.require(rank_, "abort");
  group_->comm->abort("torch aborted a call");
}

c10::intrusive_ptr<c10::ivalue::Future> PendingWork::getFuture() {
  group_->process.require(rank_, "get_future");
  auto future = call_->future();
  if (!future->completed()) watch();
  return future;
}

}  // namespace ropewalk::pytorch

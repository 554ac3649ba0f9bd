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
                         const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs)
    : Work(info.rank, info.type, info.title, for_profiler(inputs)),
      group_(parts.group),
      call_(std::make_shared<PendingCall>(parts.calls, std::move(outputs), info,
                                          std::exchange(recordFunctionEndCallback_, nullptr))) {}

PendingWork::~PendingWork() {
  if (group_->process.is_forked())
    abandon(std::move(call_));
  else if (!call_->has_ended())
    call_->follow();
}

bool PendingWork::isCompleted() {
  group_->process.require(rank_, "is_completed");
  call_->test();
  return call_->has_ended();
}

bool PendingWork::wait(std::chrono::milliseconds timeout) {
  group_->process.require(rank_, "wait");
  call_->wait(timeout == kNoTimeout ? getTimeout() : timeout);
  if (const auto error = call_->error()) std::rethrow_exception(error);
  return true;
}

void PendingWork::abort() {
  group_->process.require(rank_, "abort");
  group_->comm->abort("torch aborted a call");
}

c10::intrusive_ptr<c10::ivalue::Future> PendingWork::getFuture() {
  group_->process.require(rank_, "get_future");
  return call_->future();
}

c10::intrusive_ptr<c10d::Work> run_now(const WorkInfo& info, const Membership::Parts& parts,
                                       const std::vector<at::Tensor>& inputs,
                                       const std::vector<at::Tensor>& outputs,
                                       const std::function<void()>& run) {
  auto work = c10::make_intrusive<PendingWork>(info, parts, inputs, outputs);
  parts.calls->add(work->call());
  work->call()->run(run);
  if (const auto error = work->exception()) std::rethrow_exception(error);
  return work;
}

}  // namespace ropewalk::pytorch

// torch's handle of a call.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "group.h"
#include "watcher.h"

namespace ropewalk::pytorch {

class PendingWork final : public c10d::Work {
 public:
  /// `outputs` is the result. `pending` is null where the call has ended already.
  PendingWork(const WorkInfo& info, const Membership::Parts& parts,
              std::unique_ptr<Pending> pending, const std::vector<at::Tensor>& inputs,
              std::vector<at::Tensor> outputs);
  /// The handle goes, the call goes on.
  ~PendingWork() override;
  /// For calls that need somebody who drives them from the beginning.
  void watch();

  bool isCompleted() override;
  bool isSuccess() const override { return call_->error() == nullptr; }
  std::exception_ptr exception() const override { return call_->error(); }
  int sourceRank() const override { return call_->source(); }
  std::vector<at::Tensor> result() override { return call_->outputs(); }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  std::chrono::milliseconds getTimeout() const override { return call_->timeout(); }

 private:
  const std::shared_ptr<Group> group_;
  const std::weak_ptr<Watcher> watcher_;
  const uint64_t sequence_;
  std::shared_ptr<PendingCall> call_;
  bool watched_ = false;
};

/// Makes a call in this thread: `run` gets the timeout. Ended when it returns; throws what it
/// throws.
template <class Run>
c10::intrusive_ptr<c10d::Work> run_now(const WorkInfo& info, const Membership::Parts& parts,
                                       const std::vector<at::Tensor>& inputs,
                                       const std::vector<at::Tensor>& outputs, Run run) {
  auto call = std::make_unique<Immediate<Run>>(std::move(run));
  auto work = c10::make_intrusive<PendingWork>(info, parts, std::move(call), inputs, outputs);
  work->wait();
  return work;
}

}  // namespace ropewalk::pytorch

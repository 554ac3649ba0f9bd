// torch's handle of a call.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>  // says what there is to override
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "group.h"
#include "outstanding_calls.h"

namespace ropewalk::pytorch {

class PendingWork final : public c10d::Work {
 public:
  /// Of a call that is still to begin. `outputs` is the result.
  PendingWork(const WorkInfo& info, const Membership::Parts& parts,
              const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs);
  /// The handle goes, the call goes on.
  ~PendingWork() override;
  const std::shared_ptr<PendingCall>& call() const { return call_; }

  bool isCompleted() override;
  bool isSuccess() const override { return call_->error() == nullptr; }
  std::exception_ptr exception() const override { return call_->error(); }
  int sourceRank() const override { return call_->source(); }
  std::vector<at::Tensor> result() override { return call_->outputs(); }
  void synchronize() override { wait(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return call_->info().sequence; }
  std::chrono::milliseconds getTimeout() const override { return call_->info().timeout; }
#ifdef C10D_BACKEND_HAS_HOOKS
  uint64_t getCompletionKey() const override {
    return call_->key();
  }
#endif

 private:
  const std::shared_ptr<Group> group_;
  std::shared_ptr<PendingCall> call_;
};

/// Makes a call in this thread. Ended when it returns; throws what it throws.
c10::intrusive_ptr<c10d::Work> run_now(const WorkInfo& info, const Membership::Parts& parts,
                                       const std::vector<at::Tensor>& inputs,
                                       const std::vector<at::Tensor>& outputs,
                                       const std::function<void()>& run);

}  // namespace ropewalk::pytorch

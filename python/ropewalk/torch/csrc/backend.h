// The c10d backend "ropewalk": torch.distributed's collectives of CPU tensors, on a Communicator.
//
// Threads: any, as torch calls; calls of one group are made in the same order on every rank.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "group.h"
#include "reconfigure_rendezvous.h"
#include "tensor.h"
#include "work.h"

namespace ropewalk::pytorch {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// What torch asked for, as calls of the communicator.
struct Request {
  const char* title;  // "ropewalk:all_reduce"
  c10d::OpType type;
  std::vector<Call> calls;
  Tensors inputs, outputs;
  Tensors temporaries;           // live as long as the call
  std::function<void()> finish;  // at the end, on whichever thread sees it
};

class Backend final : public c10d::Backend {
 public:
  /// Meets the other ranks through `store`, as `join_group` tells, unless it is to wait for
  /// `reconfigure`. Raises DistBackendError.
  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
          std::chrono::milliseconds timeout, const std::optional<std::vector<int>>& global_ranks,
          bool awaits_reconfigure = false);
  /// Where `joined` has met the others already.
  Backend(const c10::intrusive_ptr<c10d::Store>& store, Joined joined,
          std::chrono::milliseconds timeout, bool is_default);
  ~Backend() override;

  const std::string getBackendName() const override { return "ropewalk"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}
  /// "shm", "tcp", ...: Communicator::transport.
  std::string transport();

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  /// Sums of sparse tensors, whose result is the union of all places. Ends before it returns.
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  /// False, as torch would go on collecting after a batch in which a call was refused.
  bool supportsCoalescing() const override { return false; }
  /// Between the two calls are collected; the end starts them as one. Work is null meanwhile.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  /// Registered memory, which moves without a copy and keeps the group's communicator alive;
  /// ordinary memory, and a warning, where a limit forbids it.
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long elements, at::TensorOptions options) override;

  void abort() override;
  void shutdown() override;  // Membership::leave

  // Other members; elastic.cc.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
  /// Those who are left meet through the store, whose host must be there. This group stays as it
  /// is, or is aborted where the flags say so.
  bool supportsShrinking() const override {
    return true;
  }
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<Options>& options) override;
  bool supportsReconfigure() const override {
    return true;
  }
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  /// Ends when all members have met. The group before is left then; where they do not meet in time,
  /// it stays as it is.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
  bool supportsAbortHooks() const override {
    return true;
  }
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(int64_t id) override {
    hooks_->remove_on_abort(id);
  }
  bool supportsCompletionHooks() const override {
    return true;
  }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override;
  void unregisterCompletionHook(int64_t id) override {
    hooks_->remove_on_completion(id);
  }
#endif

 private:
  Caller caller(const char* operation) const {
    return {getRank(), operation};
  }
  /// Throws after shutdown, and before the first `reconfigure`.
  Membership::Parts parts(const char* operation) const;
  /// Null before the first `reconfigure`.
  std::shared_ptr<Membership> membership() const;
  /// Becomes a member of this group, and of no other.
  void enter(Joined joined);
  template <class CallOptions>
  WorkPtr submit(Request request, const CallOptions& options) {
    const auto timeout =
        options.timeout == c10d::kUnsetTimeout ? options_->timeout : options.timeout;
    bool is_async = true;
    if constexpr (requires { options.asyncOp; }) is_async = options.asyncOp;
    return start(std::move(request), timeout, is_async);
  }
  WorkPtr start(Request request, std::chrono::milliseconds timeout, bool is_async);
  WorkPtr message(Collective direction, Tensors& tensors, int peer, int tag);

  const OwnProcess process_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Options> options_;
  const bool is_default_;
  const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
  const std::shared_ptr<ReconfigureRendezvous> rendezvous_;
  std::string job_;                      // Joined::job
  int shrinks_ = 0;                      // of its members
  mutable std::mutex membership_mutex_;  // guards membership_
  std::shared_ptr<Membership> membership_;
  std::atomic<uint64_t> sequence_{0};
  std::optional<Request> collected_;  // between startCoalescing and endCoalescing
};

}  // namespace ropewalk::pytorch

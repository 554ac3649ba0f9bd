// send, recv, and recv from whoever sends first.
#include <c10/util/Exception.h>

#include "backend.h"

namespace ropewalk::pytorch {
namespace {

/// Becomes a receive once it is known whom it is from.
class FromAnySource final : public Pending {
 public:
  FromAnySource(std::shared_ptr<Group> group, const Call& call, at::Tensor tensor)
      : group_(std::move(group)), call_(call), tensor_(std::move(tensor)) {}

  bool test() override { return find({}) && work_->test(); }
  bool wait_for(std::chrono::nanoseconds limit) override {
    return find(limit) && work_->wait_for(limit);
  }
  void wait(std::chrono::milliseconds timeout) override {
    if (!find(timeout)) fail(timeout);
    work_->wait(timeout);
  }
  void expire(std::chrono::milliseconds waited) override {
    if (!find({})) fail(waited);
    work_->expire(waited);
  }
  int source() const override { return source_; }

 private:
  [[noreturn]] static void fail(std::chrono::milliseconds waited) {
    throw Error(ErrorCode::timeout, "recv",
                c10::str("timeout after ", static_cast<double>(waited.count()) / 1e3,
                         " s: no rank has sent a message"),
                "does another rank call send?");
  }
  /// Another receive may take the message that this one has waited for.
  bool find(std::chrono::nanoseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!work_) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left.count() > 0 && !group_->comm->next_sender(left)) return false;
      std::lock_guard claim(group_->claim);
      if (const std::optional<int> sender = group_->comm->next_sender({})) {
        source_ = call_.root = *sender;
        work_ = group_->comm->start(call_);
      } else if (left.count() <= 0) {
        return false;
      }
    }
    return true;
  }
  const std::shared_ptr<Group> group_;
  Call call_;
  const at::Tensor tensor_;
  std::optional<Work> work_;
  int source_ = -1;
};

}  // namespace

WorkPtr Backend::message(Collective direction, Tensors& tensors, int peer, int tag) {
  const bool sends = direction == Collective::send;
  const Caller by = caller(sends ? "send" : "recv");
  if (tensors.size() != 1) by.reject(c10::str("expects one tensor, got ", tensors.size()));
  const Elements e = moved(tensors[0], by);
  Request request{sends ? "ropewalk:send" : "ropewalk:recv",
                  sends ? c10d::OpType::SEND : c10d::OpType::RECV,
                  {},
                  sends ? tensors : Tensors{},
                  sends ? Tensors{} : tensors,
                  {},
                  {}};
  Call& call = request.calls.emplace_back(
      movement(direction, sends ? e.data : nullptr, sends ? nullptr : e.data, e.count, e.type));
  call.root = peer;
  call.tag = static_cast<uint32_t>(tag);
  return start(std::move(request), options_->timeout, true);
}

WorkPtr Backend::send(Tensors& tensors, int to, int tag) {
  return message(Collective::send, tensors, to, tag);
}

WorkPtr Backend::recv(Tensors& tensors, int from, int tag) {
  return message(Collective::recv, tensors, from, tag);
}

WorkPtr Backend::recvAnysource(Tensors& tensors, int tag) {
  const Caller by = caller("recv");
  if (tensors.size() != 1) by.reject(c10::str("expects one tensor, got ", tensors.size()));
  TORCH_CHECK(!collected_, "a receive from any source cannot be coalesced");
  const Elements e = moved(tensors[0], by);
  Call call = movement(Collective::recv, nullptr, e.data, e.count, e.type);
  call.tag = static_cast<uint32_t>(tag);
  const auto both = parts("recv");
  const WorkInfo info{getRank(), c10d::OpType::RECVANYSOURCE, "ropewalk:recvAnySource", sequence_++,
                      options_->timeout};
  auto work = c10::make_intrusive<PendingWork>(
      info, both, std::make_unique<FromAnySource>(both.group, call, tensors[0]), Tensors{},
      tensors);
  work->watch();
  return work;
}

}  // namespace ropewalk::pytorch

// send, recv, and recv from whoever sends first.
#include <c10/util/Exception.h>

#include "backend.h"

namespace ropewalk::pytorch {
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
  auto work = c10::make_intrusive<PendingWork>(info, both, Tensors{}, tensors);
  both.calls->add(work->call());
  both.calls->receive_from_any(work->call(), call, tensors[0]);
  return work;
}

}  // namespace ropewalk::pytorch

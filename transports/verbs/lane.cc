#include "transports/verbs/lane.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ropewalk/status.h"

namespace ropewalk::verbs {

Lane::Lane(const Port& port, const Settings& settings, ibv_cq* cq, const QueueDepths& depths,
           uint32_t peer, uint8_t index)
    : depths_(depths),
      send_id_(WorkId{0, peer, index, true}.pack()),
      queue_pair_(port, settings, cq, depths),
      notices_max_(depths.receives - kSpare),
      notices_(std::bit_ceil(notices_max_)) {
  for (Request& request : requests_) request.send.sg_list = &request.place;
  for (uint32_t i = 0; i < kBatch; ++i) {
    receives_[i].wr_id = WorkId{0, peer, index, false}.pack();
    receives_[i].next = i + 1 < kBatch ? &receives_[i + 1] : nullptr;
  }
  for (uint32_t left = depths.receives; left > 0;) {
    const uint32_t count = std::min(left, kBatch);
    if (const int error = post_receives(count); error != 0)
      throw Error(ErrorCode::exhausted, "connect",
                  port.adapter->name() + ": cannot post receives: " + std::strerror(error));
    left -= count;
  }
}

// A notice needs no place: the bytes were written before it.
int Lane::post_receives(uint32_t count) {
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(queue_pair_.get(), &receives_[kBatch - count], &bad);
}

void Lane::put_registered(const ibv_sge& source, const Target& target) {
  Request& request = next_put(target, source.length);
  request.send.send_flags |= IBV_SEND_SIGNALED;  // the source waits for it
  asked_ = posted_;
  request.place = source;
}

int Lane::replace_receives() {
  to_receive_ -= kBatch;
  return post_receives(kBatch);
}

int Lane::send_credits() {
  if (held_ == kBatch || posted_ - completed_ + 1 >= depths_.sends) return 0;
  Request& request = next_request();
  request.send.opcode = IBV_WR_SEND_WITH_IMM;
  request.send.imm_data = htonl(taken_);
  request.send.send_flags |= IBV_SEND_INLINE;
  request.send.num_sge = 0;
  credits_given_ = taken_;
  return flush();
}

int Lane::ask_for_completion() {
  if (asked_ == posted_ || posted_ - completed_ >= depths_.sends) return 0;
  Request& request = next_request();
  request.send.opcode = IBV_WR_RDMA_WRITE;
  request.send.send_flags = IBV_SEND_SIGNALED;
  request.send.num_sge = 0;
  asked_ = posted_;
  return flush();
}

}  // namespace ropewalk::verbs

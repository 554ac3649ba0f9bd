// One queue pair to a peer, with its credits: how many puts may be under way on it, which are done,
// and what has arrived.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "transports/verbs/queue_pair.h"

namespace ropewalk::verbs {

/// Names a work request in its completion.
struct WorkId {
  uint32_t position = 0;  // of a send, among all of its lane
  uint32_t peer = 0;      // 24 bits
  uint8_t lane = 0;       // 7 bits
  bool is_send = false;

  uint64_t pack() const {
    return static_cast<uint64_t>(position) << 32 | peer << 8 | lane << 1 | (is_send ? 1 : 0);
  }
  static WorkId unpack(uint64_t id) {
    return {static_cast<uint32_t>(id >> 32), static_cast<uint32_t>(id) >> 8,
            static_cast<uint8_t>((id >> 1) & 0x7f), (id & 1) != 0};
  }
};

/// Positions and counts wrap at 2^32 and are compared by difference.
///
/// Credits: a put takes one receive request of the peer, which posts `notices` of them and some to
/// spare, and tells how many it has taken and posted again in messages of their own, now and then.
/// Those take a receive request too, out of the spare ones: a rank that polls nothing is sent few,
/// because it sends no more than `notices` puts that it could be told of.
class Lane {
 public:
  static constexpr uint32_t kInlineMax = 224;
  static constexpr uint32_t kBatch = 16;  // sends posted at once; receives posted at once
  static constexpr uint32_t kSpare = 2 * kBatch + 8;  // receives beyond those for puts
  static constexpr uint32_t kReserve = 4;             // sends kept for credits and the last flush

  struct Notice {
    uint32_t notice, bytes;
  };
  /// Where a put, or its part on this lane, goes.
  struct Target {
    uint64_t at = 0;
    uint32_t key = 0;
    uint32_t notice = 0;
  };

  /// Creates the queue pair and posts its receives. Throws what QueuePair throws.
  Lane(const Port& port, const Settings& settings, ibv_cq* cq, const QueueDepths& depths,
       uint32_t peer, uint8_t index);

  QueuePair& queue_pair() { return queue_pair_; }
  const QueuePair& queue_pair() const { return queue_pair_; }
  uint32_t notices_max() const { return notices_max_; }
  uint32_t completions_max() const { return depths_.sends + depths_.receives; }
  void set_peer(uint32_t notices, uint8_t adapter) {
    peer_notices_ = notices;
    peer_adapter = adapter;
  }

  bool can_put() const {
    return sent_ - credited_ < peer_notices_ && posted_ - completed_ + kReserve < depths_.sends;
  }
  /// Begin a write, which leaves with `flush`. Only when `can_put`, and fewer than kBatch are held
  /// back. `put_copied`: the source, kInlineMax bytes at most, is free after `flush`, or at once
  /// where that is not called `now`. `put_registered`: the completion is asked for.
  void put_copied(const std::byte* source, uint32_t bytes, const Target& target, bool now);
  void put_registered(const ibv_sge& source, const Target& target);
  uint32_t held() const { return held_; }
  /// Hands what is held back to the adapter; 0 or an errno.
  int flush();

  /// All sends before `position` are done.
  bool is_done(uint32_t position) const { return static_cast<int32_t>(completed_ - position) >= 0; }
  uint32_t position() const { return posted_; }
  /// A send, and all before it, is done.
  void complete(uint32_t position) { completed_ = position + 1; }

  // What has arrived.
  void arrived(uint32_t notice, uint32_t bytes) {
    assert(!overflows());
    notices_[place_of(arrived_++)] = {notice, bytes};
  }
  /// The same for one that is taken at once; only where none is there.
  void passed() {
    assert(!has_notice());
    taken_ = ++arrived_;
  }
  bool overflows() const { return arrived_ - taken_ == notices_max_; }
  bool has_notice() const { return arrived_ != taken_; }
  /// Both only when `has_notice`.
  const Notice& front() const {
    assert(has_notice());
    return notices_[place_of(taken_)];
  }
  void take() {
    assert(has_notice());
    ++taken_;
  }
  /// The peer has taken so many puts, ever. False: more than were sent.
  bool credit(uint32_t taken) {
    credited_ = taken;
    return static_cast<int32_t>(sent_ - credited_) >= 0;
  }
  /// A receive request was used. Posts new ones now and then; 0 or an errno.
  int received() { return ++to_receive_ < kBatch ? 0 : replace_receives(); }
  /// Gives back credits where enough are owed and the queue has room; 0 or an errno.
  int give_credits() { return taken_ - credits_given_ < notices_max_ / 4 ? 0 : send_credits(); }

  /// Asks for a completion of the last send, where none was asked for. 0 or an errno.
  int ask_for_completion();

  uint8_t adapter = 0;       // of this rank: index of the local key
  uint8_t peer_adapter = 0;  // which half of the peer's remote keys

 private:
  struct Request {
    ibv_send_wr send;
    ibv_sge place;
    std::array<std::byte, kInlineMax> copy;
  };

  size_t place_of(uint32_t position) const { return position & (notices_.size() - 1); }
  Request& next_request();
  Request& next_put(const Target& target, uint32_t bytes);
  int post_receives(uint32_t count);
  int replace_receives();
  int send_credits();

  const QueueDepths depths_;
  const uint64_t send_id_;  // WorkId of the send at position 0, packed
  QueuePair queue_pair_;
  std::array<Request, kBatch> requests_{};
  std::array<ibv_recv_wr, kBatch> receives_{};  // linked, to be posted from any of them on
  uint32_t held_ = 0;                           // of requests_
  uint32_t posted_ = 0, completed_ = 0;         // sends
  uint32_t asked_ = 0;  // position after the last that asked for a completion
  uint32_t sent_ = 0, credited_ = 0, peer_notices_ = 0;
  const uint32_t notices_max_;
  std::vector<Notice> notices_;  // a ring; a power of two
  uint32_t arrived_ = 0, taken_ = 0, credits_given_ = 0;
  uint32_t to_receive_ = 0;  // receives used and not posted again
};

// On the path of every short put, and so here.

inline Lane::Request& Lane::next_request() {
  Request& request = requests_[held_++];
  request.send.wr_id = send_id_ | static_cast<uint64_t>(posted_++) << 32;
  request.send.next = nullptr;
  request.send.send_flags = 0;
  // Each signal also tells that all sends before it are done: their places in the queue are free.
  if (posted_ - asked_ >= depths_.sends / 4) {
    request.send.send_flags = IBV_SEND_SIGNALED;
    asked_ = posted_;
  }
  return request;
}

inline Lane::Request& Lane::next_put(const Target& target, uint32_t bytes) {
  assert(can_put() && held_ < kBatch);
  Request& request = next_request();
  request.send.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send.imm_data = htonl(target.notice);
  request.send.wr.rdma.remote_addr = target.at;
  request.send.wr.rdma.rkey = target.key;
  request.send.num_sge = bytes > 0 ? 1 : 0;
  ++sent_;
  return request;
}

inline void Lane::put_copied(const std::byte* source, uint32_t bytes, const Target& target,
                             bool now) {
  assert(bytes <= kInlineMax);
  Request& request = next_put(target, bytes);
  request.send.send_flags |= IBV_SEND_INLINE;
  if (!now && bytes > 0) {
    std::memcpy(request.copy.data(), source, bytes);
    source = request.copy.data();
  }
  request.place = {reinterpret_cast<uint64_t>(source), bytes, 0};
}

inline int Lane::flush() {
  if (held_ == 0) return 0;
  for (uint32_t i = 0; i + 1 < held_; ++i) requests_[i].send.next = &requests_[i + 1].send;
  held_ = 0;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(queue_pair_.get(), &requests_[0].send, &bad);
}

}  // namespace ropewalk::verbs

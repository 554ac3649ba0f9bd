// One queue pair to a peer, with its credits: how many puts may be under way on it, which are done,
// and what has arrived.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
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
/// spare, and tells how many it has taken and posted anew in messages of their own, now and then.
/// Those take a receive request too, out of the spare ones: a rank that polls nothing is sent few,
/// because it sends no more than `notices` puts that it could be told of.
class Lane {
 public:
  static constexpr uint32_t kInlineMax = 224;
  static constexpr uint32_t kBatch = 16;  // sends posted at once; receives posted at once
  static constexpr uint32_t kSpare = 2 * kBatch + 8;  // receives beyond those for puts
  static constexpr uint32_t kReserve = 4;  // sends kept for credits and the last farewell

  struct Notice {
    uint32_t notice, bytes;
  };
  /// What one put writes on this lane.
  struct Write {
    const std::byte* source = nullptr;
    uint32_t bytes = 0;
    uint32_t local_key = 0;
    uint64_t local_at = 0;  // address for the local key
    uint64_t remote_at = 0;
    uint32_t remote_key = 0;
    uint32_t notice = 0;
    bool copied = false;  // inline: the source is free at once
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
  /// Begins a write, which leaves with `flush`. Where that is not called at once (`now`), what is
  /// inline is copied. Only when `can_put`, and fewer than kBatch are held back.
  void put(const Write& write, bool now);
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
    notices_[place_of(arrived_++)] = {notice, bytes};
  }
  bool overflows() const { return arrived_ - taken_ == notices_max_; }
  bool has_notice() const { return arrived_ != taken_; }
  const Notice& front() const { return notices_[place_of(taken_)]; }
  void take() { ++taken_; }
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
  int post_receives(uint32_t count);
  int replace_receives();
  int send_credits();

  const QueueDepths depths_;
  const WorkId id_;
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
  uint32_t to_receive_ = 0;  // receives used and not posted anew
};

}  // namespace ropewalk::verbs

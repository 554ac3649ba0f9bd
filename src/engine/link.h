// One peer of one communicator: streams, credits and grants, over the connection that all
// communicators share; and the table of a communicator's peers. The only file that turns messages
// into puts. Knows nothing of steps.
//
// Owned by the engine and used under its lock. Counters wrap at 2^32 and are compared by
// difference.
//
// Credits. At most 8 messages of a stream are unread. The receiver gives credits back in the header
// of its own next message on the stream, or by a notice once there are four. Full means: try again
// later, never wait.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bootstrap/monitor.h"
#include "engine/connection.h"

namespace ropewalk {

/// A circle of staging slots of slice_bytes each; of those that a block needs, where it needs
/// fewer.
struct Window {
  std::byte* base = nullptr;
  RemoteBuffer at{{}, 0, kWindowSlots, 1};
};

/// Where the receiver of an announced message wants it.
struct Grant {
  Signature signature;
  RemoteBuffer place;
};

class Link {
 public:
  /// `peer` is a rank of `communicator`. `connection` outlives the link.
  Link(Connection& connection, uint16_t communicator, int peer)
      : connection_(connection), communicator_(communicator), peer_(peer) {
    connection_.attach(communicator_, *this);
  }
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int peer() const { return peer_; }
  int transport_index() const { return connection_.transport_index(); }
  Transport& transport() const { return connection_.transport(); }
  bool mapped() const { return connection_.mapped(); }
  bool needs_registration() const { return connection_.capabilities().needs_registration; }
  bool registered_sources() const { return connection_.capabilities().registered_sources; }
  /// Of the transport, for a connection that is lost.
  LossReason why_lost() const { return transport().why_lost(connection_.peer()); }

  // As Connection's:
  void connect() { connection_.connect(); }
  bool has_begun() const { return connection_.has_begun(); }
  const std::optional<Failure>& failure() const { return connection_.failure(); }
  bool ready() { return connection_.ready(); }
  bool lost() const { return connection_.lost(); }
  bool sees_inbox() const { return connection_.sees_inbox(); }
  std::byte* map(RemoteKey key, uint64_t offset, size_t bytes) {
    return connection_.map(key, offset, bytes);
  }
  /// The same of what `at` says of a message of `bytes`.
  std::byte* map(const RemoteBuffer& at, size_t slice_bytes, size_t bytes) {
    return map(at.key, at.offset, at.window > 0 ? at.window * slice_bytes : bytes);
  }

  // --- sending, on stream s ---
  bool can_send(int s) {
    return out_[s].sent - out_[s].credited < kUnreadMax && connection_.has_slot();
  }
  /// Fills the next slot (of the header: the signature, bytes and kind). Requires can_send. False:
  /// the transport is full, try again.
  bool send(int s, const EagerHeader& header, const std::byte* payload, size_t payload_bytes);
  /// The oldest grant not yet finished with, or null.
  const Grant* grant(int s) {
    const Outgoing& out = out_[s];
    if (out.grants == out.grants_used &&
        !(connection_.poll_inbox() && out.grants != out.grants_used))
      return nullptr;
    return &(*granted_)[s][out.grants_used % kGrants];
  }
  /// Requires that there is one.
  void finish_grant(int s) {
    assert(out_[s].grants != out_[s].grants_used);
    ++out_[s].grants_used;
  }
  /// Puts one slice where a grant says, `offset` bytes on. `memory` as PutRequest::source_memory.
  /// `cookie` comes back in put_done unless Posted::done.
  Posted put_slice(int s, const std::byte* source, const MemoryRegistration* memory, size_t bytes,
                   const RemoteBuffer& place, uint64_t offset, uint64_t cookie);
  /// Tells that a slice of exposed data is ready. False: try again.
  bool notify_slice(int s) { return notify(NoticeKind::data, s, 1); }
  /// How many slices the peer has consumed on this stream, ever; and how many it is to consume.
  uint32_t consumed(int s) const { return out_[s].consumed; }
  uint32_t to_be_consumed(int s) const { return out_[s].to_be_consumed; }
  void expect_consumed(int s, uint32_t slices = 1) { out_[s].to_be_consumed += slices; }

  // --- receiving, on stream s ---
  /// The oldest message not yet popped, or null; see payload_of. Valid until the next call.
  const EagerHeader* front(int s) {
    const Incoming& in = in_[s];
    if (in.arrived == in.popped && !(connection_.poll_inbox() && in.arrived != in.popped))
      return nullptr;
    return in.unread[in.popped % kUnreadMax].header;
  }
  /// Requires that there is a front.
  void pop(int s) {
    Incoming& in = in_[s];
    assert(in.arrived != in.popped);
    connection_.release(in.unread[in.popped++ % kUnreadMax]);
    // Credits go back in batches: half of them costs the sender nothing and saves notices.
    if (++in.credits_owed >= kCreditBatch) owe(1u << s);
  }
  bool can_grant(int s) {
    return in_[s].granted - in_[s].grants_done < kGrants && connection_.has_slot();
  }
  /// Requires can_grant. False: the transport is full, try again.
  bool send_grant(int s, const Grant& grant);
  /// All slices of the oldest granted message have arrived.
  void grant_done(int s) {
    assert(in_[s].granted != in_[s].grants_done);
    ++in_[s].grants_done;
  }
  /// Slices notified and not yet taken.
  uint32_t slices_arrived(int s) const { return in_[s].data - in_[s].data_taken; }
  /// Requires that one has arrived.
  void take_slice(int s) {
    assert(slices_arrived(s) > 0);
    ++in_[s].data_taken;
  }
  /// Lets the peer reuse a window slot, or exposed memory.
  void consume(int s, uint32_t slices = 1) {
    in_[s].consumed_owed += slices;
    owe(1u << s);
  }

  /// Of this communicator. Does nothing while the connection's last probe is still on its way out.
  void send_probe(const Signature& signature, bool point_to_point) {
    connection_.send_probe({signature, point_to_point, communicator_, check_of(signature)});
  }
  /// The last that came, of any communicator.
  const Probe& last_probe() const { return connection_.last_probe(); }

  /// This rank leaves: no message and no slice comes after what it has sent. `flush` tells.
  void end() { owe(kOwesEnds); }
  /// Something that it says so, or gives back, could be sent, and has not been.
  bool owes() { return owing_ != 0 && ready() && !lost(); }
  /// The peer has said so, and all that it sent has arrived; or it had left before it was asked for
  /// a connection, which never gets ready.
  bool has_ended() const {
    return ends_ == (kEndOfUrgent | kEndOfSlices) || connection_.has_left();
  }

  // --- for the connection ---
  /// Nothing more passes here: what has come has gone with it, and nothing is owed.
  void forget() {
    for (Incoming& in : in_) in.popped = in.arrived;
    owing_ = 0;
  }
  /// Books a message or grant in `slot`. False: it makes no sense.
  bool book(int s, const EagerHeader& header, uint32_t slot);
  /// Books a notice on a stream that there is. False: it makes no sense.
  bool on_notice(NoticeKind kind, int s, uint32_t amount);
  /// Sends what is owed; false where the transport took not all.
  bool flush();

 private:
  struct Outgoing {
    uint32_t sent = 0, credited = 0, grants = 0, grants_used = 0;
    uint32_t consumed = 0, to_be_consumed = 0;
  };
  struct Incoming {
    uint32_t arrived = 0, popped = 0, credits_owed = 0;
    uint32_t granted = 0, grants_done = 0;
    uint32_t data = 0, data_taken = 0, consumed_owed = 0;
    std::array<Unread, kUnreadMax> unread = {};
  };

  bool fill_slot(int s, EagerHeader header, const std::byte* payload, size_t payload_bytes);
  bool notify(NoticeKind kind, int s, uint32_t amount) {
    return connection_.notify(kind, communicator_, s, amount);
  }
  void owe(uint32_t what) {
    if (owing_ == 0) connection_.add_owing(*this);
    owing_ |= what;
  }
  bool book_message(Incoming& in, const EagerHeader& header, uint32_t slot);
  bool book_grant(int s, const EagerHeader& header);
  bool end_arrived(uint32_t which);

  Connection& connection_;
  const uint16_t communicator_;
  const int peer_;
  static constexpr int kEndsShift = kStreams;
  static constexpr uint32_t kOwesEnds = (kEndOfUrgent | kEndOfSlices) << kEndsShift;
  uint32_t owing_ = 0;  // bit s: stream s owes credits or consumed notices; above: kOwesEnds
  uint32_t ends_ = 0;   // that the peer has told
  std::array<Outgoing, kStreams> out_{};
  using Grants = std::array<std::array<Grant, kGrants>, kStreams>;
  std::unique_ptr<Grants> granted_;  // those not finished with; made with the first
  std::array<Incoming, kStreams> in_{};
};

inline bool Link::book(int s, const EagerHeader& header, uint32_t slot) {
  Outgoing& out = out_[s];
  out.credited += header.credits;
  if (out.sent - out.credited > kUnreadMax) return false;
  if (header.kind == MessageKind::grant) return book_grant(s, header);
  return book_message(in_[s], header, slot);
}

inline bool Link::book_message(Incoming& in, const EagerHeader& header, uint32_t slot) {
  if (in.arrived - in.popped == kUnreadMax) return false;
  Unread& message = in.unread[in.arrived++ % kUnreadMax];
  message = {&header};
  connection_.hold(message, slot);
  return true;
}

inline bool Link::on_notice(NoticeKind kind, int s, uint32_t amount) {
  switch (kind) {
    case NoticeKind::credit:
      out_[s].credited += amount;
      return out_[s].sent - out_[s].credited <= kUnreadMax;
    case NoticeKind::data:
      ++in_[s].data;
      return true;
    case NoticeKind::consumed:
      out_[s].consumed += amount;
      return true;
    case NoticeKind::probe:
      return true;
    case NoticeKind::end:
      return end_arrived(amount);
    case NoticeKind::eager:
    case NoticeKind::slots:
      break;  // of the connection
  }
  return false;
}

/// The links of a communicator. They are made when operations first need them, or the peer's do.
class LinkTable {
 public:
  /// `members` are the communicator's ranks, as `connections`, which outlive it, number them;
  /// `rank` is this one of them.
  LinkTable(Connections& connections, uint16_t communicator, int rank, std::vector<int> members);
  ~LinkTable() { connections_.remove(communicator_); }
  LinkTable(const LinkTable&) = delete;
  LinkTable& operator=(const LinkTable&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  Connections& connections() const { return connections_; }
  uint16_t communicator() const { return communicator_; }
  /// The rank here of `peer` as `connections` number it; -1: it is not a member.
  int rank_of(int peer) const { return rank_among(members_, peer); }
  /// The other way; -1 stays.
  int in_job(int peer) const { return peer < 0 ? peer : members_[static_cast<size_t>(peer)]; }
  const std::vector<Transport*>& transports() const { return connections_.transports(); }
  Transport& transport_to(int peer) const { return connections_.transport_to(member(peer)); }
  LossReason why_lost(int peer) const { return transport_to(peer).why_lost(member(peer)); }
  /// Whether the transport to `peer` is the one of that index.
  bool goes_over(int transport, int peer) const {
    return connections_.transport_index(member(peer)) == transport;
  }
  bool is_mapped(int peer) const { return transport_to(peer).mapped_memory() != nullptr; }
  /// Longer messages to or from `peer` do not travel whole.
  size_t eager_limit(int peer) const {
    return eager_bytes_max(is_mapped(peer),
                           spreads(transport_to(peer).capabilities().spread_bytes_min));
  }
  /// Whether this rank maps the memory of every other.
  bool are_all_mapped() const;

  /// The link with `peer`, made if there is none. Throws Error.
  Link& to(int peer);
  /// Null where there is none.
  Link* find(int peer) const {
    assert(peer >= 0 && peer < size());
    return links_[static_cast<size_t>(peer)].get();
  }
  /// Null where there is no connection.
  Link* find_or_make(int peer) {
    return connections_.find(member(peer)) == nullptr ? nullptr : &to(peer);
  }
  const std::vector<Link*>& open() const { return open_; }

  /// This rank leaves the communicator: Link::end, to all peers that it is connected with, also to
  /// those to come.
  void end();
  /// Notices that can be sent, and have not been.
  bool owes() const {
    return std::ranges::any_of(open_, [](Link* link) { return link->owes(); });
  }

 private:
  int member(int peer) const {
    assert(peer >= 0 && peer < size() && peer != rank_);
    return members_[static_cast<size_t>(peer)];
  }

  Connections& connections_;
  const uint16_t communicator_;
  const int rank_;
  const std::vector<int> members_;            // by rank
  std::vector<std::unique_ptr<Link>> links_;  // by peer; null until needed
  std::vector<Link*> open_;
  bool has_ended_ = false;
};

}  // namespace ropewalk

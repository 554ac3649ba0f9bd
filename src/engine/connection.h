// One peer over one transport: the ring of message slots, which the links of all communicators
// share; and the table of all peers. Knows nothing of what messages mean.
//
// Owned by the engine and used under its lock. Counters wrap at 2^32 and are compared by
// difference.
//
// All messages of a connection, and grants, go through one ring of slots in the receiver's inbox. A
// slot is free again when what is in it and before it was read. Where the ring is full the receiver
// copies its older half away: so a message that nobody reads yet does not keep others from coming,
// and the copies are bounded by the credits of streams (engine/link.h). Freed slots are told like
// credits; where the inbox is mapped the receiver counts them in it, and the sender looks there
// once it has no more; each half of the ring wakes it, should it sleep.
//
// A receiver that sleeps does not look. So the sender calls `MappedMemory::wake`, which costs a
// fence and a look at a flag while nobody sleeps; and the driver looks at all inboxes between `arm`
// and sleeping.
//
// Messages need no put_done: who could reuse their slot knows already that the put was read.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "engine/inboxes.h"

namespace ropewalk {

class Connections;
class Link;
class LinkTable;

/// A message that its link has not popped yet: in its slot of the ring, or copied away.
struct Unread {
  const EagerHeader* header = nullptr;
  uint32_t slot = 0;  // of the ring; kSlots: copied away
};

class Connection {
 public:
  /// With an inbox that `peer`, a number of the transports', writes into. `all`, of which it is
  /// one, outlives it. Throws Error.
  Connection(Connections& all, int peer);

  int peer() const { return peer_; }
  int transport_index() const;
  Transport& transport() const { return transport_; }
  const Capabilities& capabilities() const { return capabilities_; }
  bool mapped() const { return mapped_memory_ != nullptr; }

  /// Begins connecting, once. `ready` turns true when messages can flow.
  void connect();
  bool has_begun() const { return connecting_; }
  bool is_connecting() const { return connecting_ && !ready_ && !has_left_ && !lost_; }
  bool ready() { return ready_ || try_ready(); }
  /// Why nothing more will come of this connection, if that is known here.
  const std::optional<Failure>& failure() const { return failure_; }
  /// True once the transport answered a put with `lost`.
  bool lost() const { return lost_; }
  /// As Worker::restart: over a network nothing of what was under way arrives any more.
  void restart();
  /// Both ends see the same of it, as far as this one can tell: messages can flow, or none has
  /// begun. Over mapped memory what has begun goes on.
  bool is_settled() { return !connecting_ || (!lost_ && (mapped() || ready())); }
  /// The peer has gone: nothing is sent to it or awaited from it any more.
  void lose() {
    lost_ = true;
    ready_ = false;
    peer_inbox_here_ = nullptr;
  }
  /// The peer had left before it was asked for a connection, which never gets ready.
  bool has_left() const { return has_left_; }

  /// What comes for `communicator` is for `link`, until `detach`.
  void attach(uint16_t communicator, Link& link);
  void detach(uint16_t communicator);
  /// Null where no link of the communicator is attached.
  Link* find(uint16_t communicator) const {
    const size_t place = table_index_of(communicator);
    return place < links_.size() ? links_[place] : nullptr;
  }

  // --- for links ---
  bool has_slot() { return sent_ - freed_ < kSlots || find_freed(); }
  /// Fills the next slot; of the header all but `slots` and `number` is there. Requires has_slot.
  /// False: the transport is full, try again.
  bool fill_slot(EagerHeader& header, const std::byte* payload, size_t payload_bytes);
  /// False: try again. `which` of an end: its amount.
  bool notify(NoticeKind kind, uint16_t communicator, int stream, uint32_t amount) {
    return accepted(transport_.put({.peer = peer_,
                                    .notice = make_notice(kind, communicator, stream, amount),
                                    .urgent = !is_among_slices(kind, amount)}));
  }
  Posted put(const PutRequest& request) {
    assert(request.bytes <= capabilities_.op_bytes_max);
    const Posted posted = transport_.put(request);
    accepted(posted);
    return posted;
  }
  /// `link`, which owed nothing until now, is to be asked in `flush`.
  void add_owing(Link& link) { owing_.push_back(&link); }
  /// What came in slot `number` stays there until it is released.
  void hold(Unread& message, uint32_t number) {
    message.slot = number % kSlots;
    used_[message.slot] = &message;
  }
  void release(Unread& message) {
    if (message.slot == kSlots) return free_copies_.push_back(copy_at(message.header));
    assert(used_[message.slot] == &message);
    used_[message.slot] = nullptr;
    free_slots();
  }

  /// This rank maps the peer's inbox, and the peer this rank's: messages are looked for in it, and
  /// need no notice.
  bool sees_inbox() const { return peer_inbox_here_ != nullptr; }
  /// Where the inbox is mapped by the peer: books what has come; true when anything has.
  bool poll_inbox() { return sees_inbox() && has_arrived() && book_arrivals(); }
  /// Slots of which there was none are free by now.
  bool finds_slots() { return lacks_slots_ && find_freed(); }

  /// Address of exposed or granted memory of the peer; null, with `failure`, where it cannot be
  /// mapped.
  std::byte* map(RemoteKey key, uint64_t offset, size_t bytes);
  /// After MappedMemory::unmap_deregistered: the peer may have gone, and its inbox with it.
  void find_inbox_again() {
    if (sees_inbox()) peer_inbox_here_ = map(peer_memory_, peer_offset_, inbox_bytes(true));
  }

  /// Does nothing while the last probe is still on its way out.
  void send_probe(const Probe& probe);
  void probe_sent() { probing_ = false; }
  const Probe& last_probe() const { return *reinterpret_cast<const Probe*>(inbox(kProbeOffset)); }

  /// Books a notice. False: it makes no sense.
  bool on_notice(uint32_t notice);
  /// Sends what it and its links owe (slots, credits, consumed, ends); false where the transport
  /// took not all. Cheap when nothing is owed.
  bool flush() { return (owing_.empty() && !owes_slots_) || flush_owed(); }

 private:
  struct alignas(64) SlotCopy {
    std::array<std::byte, kSlotBytesMax> bytes;
  };

  bool try_ready();
  // Sending:
  bool find_freed();
  bool accepted(Posted posted);
  static bool is_among_slices(NoticeKind kind, uint32_t amount) {
    return kind == NoticeKind::data || (kind == NoticeKind::end && amount == kEndOfSlices);
  }
  Posted put_small(const std::byte* at, size_t bytes, uint64_t offset, uint32_t notice,
                   uint64_t cookie = 0);
  bool flush_owed();
  // Receiving:
  /// The next slot of the ring holds a message.
  bool has_arrived() const {
    auto& number = const_cast<uint16_t&>(slot(arrived_)->number);
    return std::atomic_ref(number).load(std::memory_order_acquire) == number_of(arrived_);
  }
  bool book_arrivals();
  /// Made where a communicator that this rank knows has none with the peer yet, which knows it,
  /// too. Null where it does not (any more), or there is no memory.
  Link* find_or_make(uint16_t communicator);
  /// Books the message in the next slot. False: it makes no sense.
  bool book_arrival();
  bool skip_arrival();
  bool refuse(std::string reason);
  void give_up(ErrorCode code, std::string reason, std::string advice);
  /// Frees the oldest slots, as far as they were read.
  void free_slots() {
    const uint32_t before = first_used_;
    while (first_used_ != arrived_ && used_[first_used_ % kSlots] == nullptr) ++first_used_;
    if (!mapped()) return void(owes_slots_ |= first_used_ - freed_told_ >= kSlots / 2);
    std::atomic_ref(freed_count(inbox(0))).store(first_used_, std::memory_order_release);
    const bool may_be_awaited = first_used_ / (kSlots / 2) != before / (kSlots / 2);
    if (may_be_awaited && sees_inbox()) mapped_memory_->wake(peer_);
  }
  void copy_older_half();
  SlotCopy* find_copy();

  size_t slot_offset(uint32_t number) const { return kRingOffset + number % kSlots * slot_bytes_; }
  static uint16_t number_of(uint32_t slot) { return static_cast<uint16_t>(slot + 1); }
  const EagerHeader* slot(uint32_t number) const {
    return reinterpret_cast<const EagerHeader*>(inbox(slot_offset(number)));
  }
  static uint32_t& freed_count(std::byte* inbox) {
    return *reinterpret_cast<uint32_t*>(inbox + kFreedOffset);
  }
  static SlotCopy* copy_at(const EagerHeader* header) {
    return reinterpret_cast<SlotCopy*>(const_cast<EagerHeader*>(header));
  }
  std::byte* outbox(size_t offset) { return boxes_.base + inbox_bytes(mapped()) + offset; }
  std::byte* inbox(size_t offset) const { return boxes_.base + offset; }

  Connections& all_;
  const int peer_;
  Transport& transport_;
  const Capabilities capabilities_;
  MappedMemory* const mapped_memory_;     // the transport's
  const size_t slot_bytes_;               // in both inboxes
  const Boxes boxes_;                     // the inbox, and what is put into the peer's
  RemoteKey peer_memory_;                 // that the peer's inbox is in
  uint64_t peer_offset_ = 0;              // where
  std::byte* peer_inbox_here_ = nullptr;  // where it is mapped
  bool connecting_ = false;
  bool ready_ = false;
  bool probing_ = false;
  bool lost_ = false;
  bool has_left_ = false;
  bool owes_slots_ = false;
  bool lacks_slots_ = false;  // there was none, where the peer's inbox is mapped
  std::optional<Failure> failure_;
  uint32_t sent_ = 0, freed_ = 0;  // slots of the peer's ring
  // Of this rank's; those before first_used_ are free.
  uint32_t arrived_ = 0, first_used_ = 0, freed_told_ = 0;
  std::array<Unread*, kSlots> used_{};  // what is in them; null: it was read
  std::vector<std::unique_ptr<SlotCopy>> copies_;
  std::vector<SlotCopy*> free_copies_;  // of these
  std::vector<Link*> links_;            // by table_index_of(communicator); null: none
  std::vector<Link*> owing_;            // of these
};

/// This rank's connections: which transport reaches which peer. They are made when operations first
/// need them.
class Connections {
 public:
  /// `transports[route[peer]]` reaches `peer`; they outlive the table.
  Connections(int rank, std::vector<Transport*> transports, std::vector<int> route);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(route_.size()); }
  const std::vector<Transport*>& transports() const { return transports_; }
  bool has_networks() const { return !networks_.empty(); }
  int transport_index(int peer) const { return route_[static_cast<size_t>(peer)]; }
  Transport& transport_to(int peer) const {
    assert(peer >= 0 && peer < size() && peer != rank_);
    return *transports_[static_cast<size_t>(transport_index(peer))];
  }

  /// The connection with `peer`, made if there is none. Throws Error.
  Connection& to(int peer);
  Boxes take_inbox(int peer) { return inboxes_[static_cast<size_t>(transport_index(peer))].take(); }
  /// Null where there is none.
  Connection* find(int peer) const {
    assert(peer >= 0 && peer < size());
    return connections_[static_cast<size_t>(peer)].get();
  }
  /// Whether connections have become ready since the last call: what waits for them may go on.
  bool find_ready();
  /// Some are being established still, as find_ready last saw them.
  bool are_connecting() const {
    return ready_ != open_.size() && std::ranges::any_of(open_, [](const Connection* connection) {
             return connection->is_connecting();
           });
  }

  /// As Transport::set_batching, of all networks.
  void set_batching(bool on) {
    for (Transport* network : networks_) network->set_batching(on);
  }
  /// Connects to peers that want it. Throws Error.
  void answer_connects();
  /// This rank has left: from now on it only tells that to those who want a new connection.
  void set_left() { has_left_ = true; }
  /// Sends what is owed; false where a transport took not all.
  bool flush() {
    bool all = true;
    for (Connection* connection : open_)
      if (connection->ready()) all &= connection->flush();
    return all;
  }
  /// Puts that were posted and are still to be completed, or bytes that a transport holds back.
  bool has_unsent() const {
    return puts_under_way_ > 0 ||
           std::ranges::any_of(networks_, [](Transport* network) { return network->has_unsent(); });
  }
  /// As Worker::restart.
  void restart(const std::vector<int>& departed);
  /// Of the first `count` peers, bit by bit: whether they and this rank see the same of their
  /// connection, as far as this rank can tell.
  uint64_t settled(int count) const {
    uint64_t peers = 0;
    for (int peer = 0; peer < std::min(count, size()); ++peer) {
      Connection* const connection = peer == rank_ ? nullptr : find(peer);
      if (connection == nullptr || connection->is_settled()) peers |= uint64_t{1} << peer;
    }
    return peers;
  }
  /// Looks for messages that peers stored into mapped inboxes, and for free slots in those that
  /// were full; true when there are new ones.
  bool poll_inboxes() {
    bool found = false;
    for (Connection* connection : open_)
      found |= connection->poll_inbox() || connection->finds_slots();
    return found;
  }
  /// Unmaps peers' memory that they have deregistered. Requires that no operation is under way.
  void unmap_deregistered();
  void put_posted() { ++puts_under_way_; }
  void put_done() {
    assert(puts_under_way_ > 0);
    --puts_under_way_;
  }
  bool has_puts_under_way() const { return puts_under_way_ > 0; }

  /// Peers' messages of `communicator` are for links of `table`, until `remove`.
  void add(uint16_t communicator, LinkTable& table);
  void remove(uint16_t communicator);
  /// It was a communicator's of this rank, not long ago: what still comes of it means nothing.
  bool is_retired(uint16_t communicator) const { return retired_[communicator]; }
  /// Null where there is none.
  LinkTable* find_table(uint16_t communicator) const {
    const size_t place = table_index_of(communicator);
    return place < tables_.size() ? tables_[place] : nullptr;
  }

 private:
  const int rank_;
  const std::vector<Transport*> transports_;
  std::vector<Transport*> networks_;  // of these, where bytes may wait: not in mapped memory
  const std::vector<int> route_;
  std::vector<Inboxes> inboxes_;                          // by transport
  std::vector<std::unique_ptr<Connection>> connections_;  // by peer; null until needed
  std::vector<Connection*> open_;
  std::vector<LinkTable*> tables_;  // by table_index_of(communicator); null: there is none
  std::bitset<kCommunicatorsMax> retired_;
  bool has_left_ = false;
  std::vector<int> wanted_;      // peers; of one call of answer_connects
  size_t ready_ = 0;             // of these, when find_ready looked last
  uint32_t puts_under_way_ = 0;  // posted, put_done still to come
};

inline int Connection::transport_index() const {
  return all_.transport_index(peer_);
}

inline bool Connection::accepted(Posted posted) {
  if (posted == Posted::lost) lost_ = true;
  if (posted == Posted::posted) all_.put_posted();
  return posted == Posted::done || posted == Posted::posted;
}

inline Posted Connection::put_small(const std::byte* at, size_t bytes, uint64_t offset,
                                    uint32_t notice, uint64_t cookie) {
  assert(bytes <= kUrgentPutBytesMax);
  // The source is a mirror slot. A message's is not reused before the peer has read the put's
  // target, so that nobody needs its put_done (cookie 0).
  return transport_.put({.peer = peer_,
                         .source = at,
                         .source_memory = boxes_.memory,
                         .bytes = bytes,
                         .key = peer_memory_,
                         .offset = peer_offset_ + offset,
                         .notice = notice,
                         .urgent = notice_kind(notice) != NoticeKind::probe,
                         .cookie = cookie});
}

inline bool Connection::fill_slot(EagerHeader& header, const std::byte* payload,
                                  size_t payload_bytes) {
  assert(payload_bytes <= eager_bytes_max(mapped()) && sent_ - freed_ < kSlots);
  if (lost_) return false;
  const uint64_t offset = slot_offset(sent_);
  const size_t payload_at = payload_offset(payload_bytes);
  header.slots = mapped() ? 0 : static_cast<uint8_t>(first_used_ - freed_told_);
  header.number = number_of(sent_);
  std::byte* slot = sees_inbox() ? peer_inbox_here_ + offset : outbox(offset);
  std::memcpy(slot, &header, offsetof(EagerHeader, number));
  if (payload_bytes > 0) std::memcpy(slot + payload_at, payload, payload_bytes);
  std::atomic_ref(reinterpret_cast<EagerHeader*>(slot)->number)
      .store(header.number, std::memory_order_release);
  if (sees_inbox())
    mapped_memory_->wake(peer_);
  else if (!accepted(put_small(slot, payload_at + payload_bytes, offset,
                               make_notice(NoticeKind::eager, header.communicator, header.stream))))
    return false;
  ++sent_;
  freed_told_ = first_used_;
  return true;
}

}  // namespace ropewalk

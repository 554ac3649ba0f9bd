// One peer over one transport: the ring of slots, streams, credits and grants; and the table of all
// peers. The only file that turns messages into puts. Knows nothing of steps.
//
// Owned by the engine and used under its lock. Counters wrap at 2^32 and are compared by
// difference.
//
// Credits. At most 8 messages of a stream are unread. The receiver gives credits back in the header
// of its own next message on the stream, or by a notice once there are four. Full means: try again
// later, never wait.
//
// The ring. All messages of a link, and grants, go through one ring of slots in the receiver's
// inbox. A slot is free again when what is in it and before it was read. Where the ring is full the
// receiver copies its older half away: so a message that nobody reads yet does not keep others from
// coming, and the copies are bounded by the credits. Freed slots are told like credits; where the
// inbox is mapped the receiver counts them in it, and the sender looks there once it has no more;
// each half of the ring wakes it, should it sleep.
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
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/wire.h"
#include "memory/registered_memory.h"

namespace ropewalk {

/// A circle of staging slots of slice_bytes each.
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
  /// Allocates and registers the inbox that `peer` writes into. `transport` outlives the link.
  /// `puts_under_way` counts puts answered `posted`; the engine counts down.
  Link(Transport& transport, int transport_index, int peer, uint32_t& puts_under_way);

  int peer() const { return peer_; }
  int transport_index() const { return transport_index_; }
  Transport& transport() const { return transport_; }
  bool mapped() const { return mapped_memory_ != nullptr; }
  bool needs_registration() const { return capabilities_.needs_registration; }
  bool registered_sources() const { return capabilities_.registered_sources; }

  /// Begins connecting, once. `ready` turns true when messages can flow.
  void connect();
  bool has_begun() const { return connecting_; }
  /// Why nothing more will come of this link, if that is known here.
  const std::optional<Failure>& failure() const { return failure_; }
  bool ready() { return ready_ || try_ready(); }

  // --- sending, on stream s ---
  bool can_send(int s) { return out_[s].sent - out_[s].credited < kUnreadMax && has_slot(); }
  /// Fills the next slot (of the header: the signature, bytes and kind). Requires can_send. False:
  /// the transport is full, try again.
  bool send(int s, const EagerHeader& header, const std::byte* payload, size_t payload_bytes);
  /// The oldest grant not yet finished with, or null.
  const Grant* grant(int s) {
    const Outgoing& out = out_[s];
    if (out.grants == out.grants_used && !(poll_inbox() && out.grants != out.grants_used))
      return nullptr;
    return &out.granted[out.grants_used % kGrants];
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
    if (in.arrived == in.popped && !(poll_inbox() && in.arrived != in.popped)) return nullptr;
    return in.unread[in.popped % kUnreadMax].header;
  }
  /// This rank maps the peer's inbox, and the peer this rank's: `front` looks into it, and needs no
  /// notice.
  bool sees_inbox() const { return peer_inbox_here_ != nullptr; }
  /// Where the inbox is mapped by the peer: books what has come; true when anything has.
  bool poll_inbox() { return peer_inbox_here_ != nullptr && has_arrived() && book_arrivals(); }
  /// Slots of which there was none are free by now.
  bool finds_slots() { return lacks_slots_ && find_freed(); }
  /// Requires that there is a front.
  void pop(int s) {
    Incoming& in = in_[s];
    assert(in.arrived != in.popped);
    release(in.unread[in.popped++ % kUnreadMax]);
    // Credits go back in batches: half of them costs the sender nothing and saves notices.
    if (++in.credits_owed >= kCreditBatch) owing_ |= 1u << s;
  }
  bool can_grant(int s) { return in_[s].granted - in_[s].grants_done < kGrants && has_slot(); }
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
    owing_ |= 1u << s;
  }

  /// Address of exposed or granted memory of the peer; null, with `failure`, where it cannot be
  /// mapped.
  std::byte* map(RemoteKey key, uint64_t offset, size_t bytes);
  /// The same of what `at` says of a message of `bytes`.
  std::byte* map(const RemoteBuffer& at, size_t slice_bytes, size_t bytes) {
    return map(at.key, at.offset, at.window > 0 ? at.window * slice_bytes : bytes);
  }

  /// After MappedMemory::unmap_deregistered: the peer may have gone, and its inbox with it.
  void find_inbox_again() {
    if (peer_inbox_here_ != nullptr) peer_inbox_here_ = map(peer_inbox_, 0, kInboxBytes);
  }

  /// Does nothing while the last probe is still on its way out.
  void send_probe(const Probe& probe);
  void probe_sent() { probing_ = false; }
  const Probe& last_probe() const { return *reinterpret_cast<const Probe*>(inbox(kProbeOffset)); }

  /// This rank leaves: no message and no slice comes after what it has sent. `flush` tells.
  void end() { owing_ |= kOwesEnds; }
  /// The peer has said so, and all that it sent has arrived; or it had left before it was asked for
  /// a link, which never gets ready.
  bool has_ended() const { return ends_ == (kEndOfUrgent | kEndOfSlices); }

  /// True once the transport answered a put with `lost`.
  bool lost() const { return lost_; }

  /// Books a notice. False: it makes no sense.
  bool on_notice(uint32_t notice);
  /// Sends what is owed (credits, consumed); false where the transport took not all. Cheap when
  /// nothing is owed.
  bool flush() { return owing_ == 0 || flush_owed(); }

 private:
  /// A message that was not popped yet: in its slot of the ring, or copied away.
  struct Unread {
    const EagerHeader* header = nullptr;
    uint32_t slot = 0;  // its number in the ring; meaningless of a copy
  };
  struct alignas(64) SlotCopy {
    std::array<std::byte, kSlotBytes> bytes;
  };
  struct Outgoing {
    uint32_t sent = 0, credited = 0, grants = 0, grants_used = 0;
    uint32_t consumed = 0, to_be_consumed = 0;
    std::array<Grant, kGrants> granted = {};
  };
  struct Incoming {
    uint32_t arrived = 0, popped = 0, credits_owed = 0;
    uint32_t granted = 0, grants_done = 0;
    uint32_t data = 0, data_taken = 0, consumed_owed = 0;
    std::array<Unread, kUnreadMax> unread = {};
  };

  bool try_ready();
  // Sending:
  /// Of the ring.
  bool has_slot() { return sent_ - freed_ < kSlots || find_freed(); }
  bool find_freed();
  bool fill_slot(int s, EagerHeader header, const std::byte* payload, size_t payload_bytes);
  // Receiving:
  /// The next slot of the ring holds a message.
  bool has_arrived() const {
    auto& number = const_cast<uint16_t&>(slot(arrived_)->number);
    return std::atomic_ref(number).load(std::memory_order_acquire) == number_of(arrived_);
  }
  bool book_arrivals();
  /// Books the message in the next slot. False: it makes no sense.
  bool book_arrival();
  bool book_message(int s, const EagerHeader* header);
  bool book_grant(int s, const EagerHeader& header);
  bool refuse(std::string reason);
  void release(Unread& message) {
    Unread*& used = used_[message.slot % kSlots];
    if (used != &message) return free_copies_.push_back(copy_at(message.header));
    used = nullptr;
    free_slots();
  }
  /// Frees the oldest slots, as far as they were read.
  void free_slots() {
    const uint32_t before = first_used_;
    while (first_used_ != arrived_ && used_[first_used_ % kSlots] == nullptr) ++first_used_;
    if (!mapped() && first_used_ - freed_told_ >= kSlots / 2) owing_ |= kOwesSlots;
    if (!mapped()) return;
    std::atomic_ref(freed_count(inbox(0))).store(first_used_, std::memory_order_release);
    const bool may_be_awaited = first_used_ / (kSlots / 2) != before / (kSlots / 2);
    if (may_be_awaited && peer_inbox_here_ != nullptr) mapped_memory_->wake(peer_);
  }
  void copy_older_half();
  SlotCopy* find_copy();
  bool flush_owed();
  bool end_arrived(uint32_t which);
  bool notify(NoticeKind kind, int s, uint32_t amount) {
    return accepted(transport_.put({.peer = peer_,
                                    .notice = make_notice(kind, s, amount),
                                    .urgent = !is_among_slices(kind, amount)}));
  }
  bool accepted(Posted posted) {
    if (posted == Posted::lost) lost_ = true;
    if (posted == Posted::posted) ++puts_under_way_;
    return posted == Posted::done || posted == Posted::posted;
  }
  static bool is_among_slices(NoticeKind kind, uint32_t amount) {
    return kind == NoticeKind::data || (kind == NoticeKind::end && amount == kEndOfSlices);
  }
  void give_up(ErrorCode code, std::string reason, std::string advice);
  Posted put_small(const std::byte* at, size_t bytes, uint64_t offset, uint32_t notice,
                   uint64_t cookie = 0);
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
  std::byte* outbox(size_t offset) { return boxes_.data() + kInboxBytes + offset; }
  std::byte* inbox(size_t offset) const { return boxes_.data() + offset; }

  Transport& transport_;
  const int transport_index_;
  const int peer_;
  uint32_t& puts_under_way_;
  const Capabilities capabilities_;
  MappedMemory* const mapped_memory_;  // the transport's
  RegisteredMemory boxes_;             // inbox, then a mirror from which slots are put
  RemoteKey peer_inbox_;
  std::byte* peer_inbox_here_ = nullptr;  // where it is mapped
  bool connecting_ = false;
  bool ready_ = false;
  bool probing_ = false;
  bool lost_ = false;
  std::optional<Failure> failure_;
  static constexpr int kEndsShift = kStreams;
  static constexpr uint32_t kOwesEnds = (kEndOfUrgent | kEndOfSlices) << kEndsShift;
  static constexpr uint32_t kOwesSlots = 1u << (kEndsShift + 2);
  uint32_t owing_ =
      0;  // bit s: stream s owes credits or consumed notices; above: kOwesEnds, kOwesSlots
  uint32_t ends_ = 0;              // that the peer has told
  uint32_t sent_ = 0, freed_ = 0;  // slots of the peer's ring
  bool lacks_slots_ = false;       // of which there was none, where it is mapped
  // Of this rank's; those before first_used_ are free.
  uint32_t arrived_ = 0, first_used_ = 0, freed_told_ = 0;
  std::array<Unread*, kSlots> used_{};  // what is in them; null: it was read
  std::vector<std::unique_ptr<SlotCopy>> copies_;
  std::vector<SlotCopy*> free_copies_;  // of these
  std::array<Outgoing, kStreams> out_{};
  std::array<Incoming, kStreams> in_{};
};

/// This rank's links: which transport reaches which peer. Links are made when operations first need
/// them.
class LinkTable {
 public:
  /// `transports[route[peer]]` reaches `peer`; they outlive the table.
  LinkTable(int rank, std::vector<Transport*> transports, std::vector<int> route);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(route_.size()); }
  const std::vector<Transport*>& transports() const { return transports_; }
  bool has_networks() const { return !networks_.empty(); }
  int transport_index(int peer) const { return route_[static_cast<size_t>(peer)]; }
  Transport& transport_to(int peer) const {
    assert(peer >= 0 && peer < size() && peer != rank_);
    return *transports_[static_cast<size_t>(transport_index(peer))];
  }
  /// Whether this rank maps the memory of every other.
  bool are_all_mapped() const {
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank_ && transport_to(peer).mapped_memory() == nullptr) return false;
    return true;
  }

  /// The link with `peer`, made if there is none. Throws Error.
  Link& to(int peer);
  /// Null where there is none.
  Link* find(int peer) const {
    assert(peer >= 0 && peer < size());
    return links_[static_cast<size_t>(peer)].get();
  }
  const std::vector<Link*>& open() const { return open_; }
  /// Whether links have become ready since the last call: what waits for them may go on.
  bool find_ready() {
    if (ready_ == open_.size()) return false;
    const size_t before = ready_;
    const auto is_ready = [](Link* link) { return link->ready(); };
    ready_ = static_cast<size_t>(std::ranges::count_if(open_, is_ready));
    return ready_ != before;
  }

  /// As Transport::set_batching, of all networks.
  void set_batching(bool on) {
    for (Transport* network : networks_) network->set_batching(on);
  }
  /// This rank leaves: Link::end, of all links.
  void end() {
    has_ended_ = true;
    for (Link* link : open_) link->end();
  }
  /// Connects to a peer that wants it; once this rank has left only to tell that. Throws Error.
  void answer(int peer);
  /// Sends the credits, `consumed` notices and ends that are owed; false where a transport took not
  /// all.
  bool flush() {
    bool all = true;
    for (Link* link : open_)
      if (link->ready()) all &= link->flush();
    return all;
  }
  /// Puts that were posted and are still to be completed, or bytes that a transport holds back.
  bool has_unsent() const {
    return puts_under_way_ > 0 ||
           std::ranges::any_of(networks_, [](Transport* network) { return network->has_unsent(); });
  }
  /// Looks for messages that peers stored into mapped inboxes, and for free slots in those that
  /// were full; true when there are new ones.
  bool poll_inboxes() {
    bool found = false;
    for (Link* link : open_) found |= link->poll_inbox() || link->finds_slots();
    return found;
  }
  /// Unmaps peers' memory that they have deregistered. Requires that no operation is under way.
  void unmap_deregistered() {
    for (Transport* transport : transports_)
      if (MappedMemory* mapped = transport->mapped_memory()) mapped->unmap_deregistered();
    for (Link* link : open_) link->find_inbox_again();
  }
  void put_done() {
    assert(puts_under_way_ > 0);
    --puts_under_way_;
  }
  bool has_puts_under_way() const { return puts_under_way_ > 0; }

 private:
  const int rank_;
  const std::vector<Transport*> transports_;
  std::vector<Transport*> networks_;  // of these, where bytes may wait: not in mapped memory
  const std::vector<int> route_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer; null until needed
  std::vector<Link*> open_;
  bool has_ended_ = false;
  size_t ready_ = 0;             // of these, when find_ready looked last
  uint32_t puts_under_way_ = 0;  // posted, put_done still to come
};

}  // namespace ropewalk

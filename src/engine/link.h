// One peer over one transport: the streams' rings, credits and grants; and the table of all peers.
// The only file that turns messages into puts. Knows nothing of steps.
//
// Owned by the engine and used under its lock. Counters wrap at 2^32 and are compared by
// difference.
//
// Credits. A stream has 8 message slots in the receiver's inbox. The sender counts free ones; the
// receiver gives them back in the header of its own next message on the stream, or by a notice once
// there are four. Full means: try again later, never wait.
//
// A receiver that sleeps does not look. So the sender calls `MappedMemory::wake`, which costs a
// fence and a look at a flag while nobody sleeps; and the driver looks at all inboxes between `arm`
// and sleeping.
//
// Headers, grants and credits need no put_done: who could reuse their slot knows already that the
// put was read.
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
  bool can_send(int s) const { return out_[s].sent - out_[s].credited < kSlots; }
  /// Fills the next eager slot (the header's number and credits are set here). Requires can_send.
  /// False: the transport is full, try again.
  bool send(int s, EagerHeader header, const std::byte* payload, size_t payload_bytes);
  /// The oldest grant not yet finished with, or null.
  const Grant* grant(int s) const {
    if (out_[s].grants == out_[s].grants_used) return nullptr;
    return reinterpret_cast<const Grant*>(inbox(grant_offset(s, out_[s].grants_used)));
  }
  /// Requires that there is one.
  void finish_grant(int s) {
    assert(out_[s].grants != out_[s].grants_used);
    ++out_[s].grants_used;
  }
  /// Puts one slice where a grant says. `memory` as PutRequest::source_memory. `cookie` comes
  /// back in put_done unless Posted::done.
  Posted put_slice(int s, const std::byte* source, const MemoryRegistration* memory, size_t bytes,
                   const Grant& grant, uint64_t offset, uint64_t cookie);
  /// Tells that a slice of exposed data is ready. False: try again.
  bool notify_slice(int s) { return notify(NoticeKind::data, s, 1); }
  /// How many slices the peer has consumed on this stream, ever; and how many it is to consume.
  uint32_t consumed(int s) const { return out_[s].consumed; }
  uint32_t to_be_consumed(int s) const { return out_[s].to_be_consumed; }
  void expect_consumed(int s, uint32_t slices = 1) { out_[s].to_be_consumed += slices; }

  // --- receiving, on stream s ---
  /// The oldest message not yet popped, or null; see payload_of.
  const EagerHeader* front(int s) {
    return in_[s].arrived != in_[s].popped || look(s) ? slot(s, in_[s].popped) : nullptr;
  }
  /// This rank maps the peer's inbox, and the peer this rank's: `front` looks into it, and needs no
  /// notice.
  bool sees_inbox() const { return peer_inbox_here_ != nullptr; }
  /// Where the inbox is mapped by the peer: looks for one more message; true when there is one.
  bool look(int s) {
    if (peer_inbox_here_ == nullptr) return false;
    const uint32_t number = in_[s].arrived + 1;
    const EagerHeader* next = slot(s, in_[s].arrived);
    if (std::atomic_ref(const_cast<uint32_t&>(next->number)).load(std::memory_order_acquire) !=
        number)
      return false;
    return arrive(s);
  }
  /// Requires that there is a front.
  void pop(int s) {
    assert(in_[s].arrived != in_[s].popped);
    ++in_[s].popped;
    // Credits go back in batches: half a ring costs the sender nothing and saves notices.
    if (++in_[s].credits_owed >= kCreditBatch) owing_ |= 1u << s;
  }
  bool can_grant(int s) const { return in_[s].granted - in_[s].grants_done < kGrants; }
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
  struct Outgoing {
    uint32_t sent = 0, credited = 0, grants = 0, grants_used = 0;
    uint32_t consumed = 0, to_be_consumed = 0;
  };
  struct Incoming {
    uint32_t arrived = 0, popped = 0, credits_owed = 0;
    uint32_t granted = 0, grants_done = 0;
    uint32_t data = 0, data_taken = 0, consumed_owed = 0;
  };

  bool try_ready();
  /// Books the next message. False: it makes no sense.
  bool arrive(int s) {
    Outgoing& out = out_[s];
    out.credited += slot(s, in_[s].arrived++)->credits;
    return (out.sent - out.credited <= kSlots && in_[s].arrived - in_[s].popped <= kSlots) ||
           refuse_arrival(s);
  }
  bool refuse_arrival(int s);
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
  const EagerHeader* slot(int s, uint32_t number) const {
    return reinterpret_cast<const EagerHeader*>(inbox(slot_offset(s, number)));
  }
  std::byte* outbox(size_t offset) { return boxes_.data() + kInboxBytes + offset; }
  const std::byte* inbox(size_t offset) const { return boxes_.data() + offset; }

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
  uint32_t owing_ = 0;  // bit s: stream s owes credits or consumed notices; above: ends to be told
  uint32_t ends_ = 0;   // that the peer has told
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
  /// Looks for messages that peers stored into mapped inboxes; true when there are new ones.
  bool poll_inboxes() {
    bool found = false;
    for (Link* link : open_)
      for (int stream = 0; stream < kStreams; ++stream) found |= link->look(stream);
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

#include "engine/link.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

namespace ropewalk {

static_assert(kStreams + 3 <= 32, "owing_ has a bit per stream, and three more");
static_assert(kSlotBytes <= kUrgentPutBytesMax);

Link::Link(Transport& transport, int transport_index, int peer, uint32_t& puts_under_way)
    : transport_(transport),
      transport_index_(transport_index),
      peer_(peer),
      puts_under_way_(puts_under_way),
      capabilities_(transport.capabilities()),
      mapped_memory_(transport.mapped_memory()),
      boxes_(kInboxBytes + (mapped() ? kRingOffset : kInboxBytes), std::array{&transport}) {
  boxes_.register_with(transport_);
}

void Link::connect() {
  if (connecting_) return;
  connecting_ = true;
  const LinkHello hello{kWireVersion, static_cast<uint32_t>(kInboxBytes),
                        boxes_.registrations()[0]->key()};
  try {
    transport_.connect(peer_, std::as_bytes(std::span(&hello, 1)));
  } catch (const Error& error) {
    // Perhaps the peer has just died: the engine waits a little for the monitor to say so.
    give_up(error.code(), "no link can be made: " + error.failure().reason, error.failure().advice);
  }
}

bool Link::try_ready() {
  if (!connecting_) return false;
  const auto bytes = transport_.hello_of(peer_);
  if (!bytes || lost_) return false;
  LinkHello hello;
  if (bytes->size() == sizeof(hello)) std::memcpy(&hello, bytes->data(), sizeof(hello));
  const bool is_known = bytes->size() == sizeof(hello) && hello.version == kWireVersion;
  if (is_known && hello.inbox_bytes == 0) {
    ends_ = kEndOfUrgent | kEndOfSlices;
    return false;
  }
  if (!is_known || hello.inbox_bytes != kInboxBytes) {
    give_up(ErrorCode::refused, "it speaks another version of the engine protocol",
            "run the same version of Ropewalk on every rank");
    return false;
  }
  peer_inbox_ = hello.inbox;
  if (mapped()) {
    peer_inbox_here_ = map(hello.inbox, 0, kInboxBytes);
    if (peer_inbox_here_ == nullptr) return false;
  }
  ready_ = true;
  return true;
}

void Link::give_up(ErrorCode code, std::string reason, std::string advice) {
  failure_ = Failure{code, "link", "rank " + std::to_string(peer_) + ": " + std::move(reason),
                     std::move(advice)};
  lost_ = true;
}

std::byte* Link::map(RemoteKey key, uint64_t offset, size_t bytes) {
  if (lost_) return nullptr;
  std::byte* address = mapped() ? mapped_memory_->map(peer_, key, offset, bytes) : nullptr;
  if (address == nullptr) {
    LossReason why = transport_.why_lost(peer_);
    give_up(ErrorCode::unavailable, std::move(why.text), std::move(why.advice));
  }
  return address;
}

Posted Link::put_small(const std::byte* at, size_t bytes, uint64_t offset, uint32_t notice,
                       uint64_t cookie) {
  // The source is a mirror slot. A message's is not reused before the peer has read the put's
  // target, so that nobody needs its put_done (cookie 0).
  return transport_.put({.peer = peer_,
                         .source = at,
                         .source_memory = boxes_.registrations()[0].get(),
                         .bytes = bytes,
                         .key = peer_inbox_,
                         .offset = offset,
                         .notice = notice,
                         .urgent = notice_kind(notice) != NoticeKind::probe,
                         .cookie = cookie});
}

bool Link::find_freed() {
  if (peer_inbox_here_ == nullptr) return false;
  const uint32_t freed =
      std::atomic_ref(freed_count(peer_inbox_here_)).load(std::memory_order_acquire);
  if (sent_ - freed > kSlots) return refuse("it gave back slots that were not used");
  freed_ = freed;
  lacks_slots_ = sent_ - freed_ == kSlots;
  return !lacks_slots_;
}

bool Link::send(int s, const EagerHeader& header, const std::byte* payload, size_t payload_bytes) {
  assert(can_send(s));
  if (!fill_slot(s, header, payload, payload_bytes)) return false;
  ++out_[s].sent;
  return true;
}

bool Link::send_grant(int s, const Grant& grant) {
  assert(can_grant(s));
  const EagerHeader header{.signature = grant.signature, .kind = MessageKind::grant};
  if (!fill_slot(s, header, reinterpret_cast<const std::byte*>(&grant.place), sizeof(grant.place)))
    return false;
  ++in_[s].granted;
  return true;
}

bool Link::fill_slot(int s, EagerHeader header, const std::byte* payload, size_t payload_bytes) {
  assert(payload_bytes <= kEagerBytesMax);
  if (lost_) return false;
  const uint64_t offset = slot_offset(sent_);
  const size_t payload_at = payload_offset(payload_bytes);
  header.stream = static_cast<uint8_t>(s);
  header.credits = static_cast<uint8_t>(in_[s].credits_owed);
  header.slots = mapped() ? 0 : static_cast<uint8_t>(first_used_ - freed_told_);
  header.number = number_of(sent_);
  std::byte* slot = peer_inbox_here_ != nullptr ? peer_inbox_here_ + offset : outbox(offset);
  std::memcpy(slot, &header, offsetof(EagerHeader, number));
  if (payload_bytes > 0) std::memcpy(slot + payload_at, payload, payload_bytes);
  std::atomic_ref(reinterpret_cast<EagerHeader*>(slot)->number)
      .store(header.number, std::memory_order_release);
  if (peer_inbox_here_ != nullptr)
    mapped_memory_->wake(peer_);
  else if (!accepted(put_small(slot, payload_at + payload_bytes, offset,
                               make_notice(NoticeKind::eager, s))))
    return false;
  ++sent_;
  in_[s].credits_owed = 0;
  freed_told_ = first_used_;
  return true;
}

bool Link::book_arrivals() {
  bool found = false;
  while (has_arrived() && book_arrival()) found = true;
  return found;
}

/// What it reads it reads once: the peer may write there.
bool Link::book_arrival() {
  const EagerHeader* header = slot(arrived_);
  const int s = header->stream;
  if (s >= kStreams) return refuse("it sent a message on stream " + std::to_string(s));
  if (!mapped()) freed_ += header->slots;
  out_[s].credited += header->credits;
  if (sent_ - freed_ > kSlots || out_[s].sent - out_[s].credited > kUnreadMax)
    return refuse("it gave back slots that it was not sent");
  const bool is_grant = header->kind == MessageKind::grant;
  if (!(is_grant ? book_grant(s, *header) : book_message(s, header)))
    return refuse("it sent more than it may");
  ++arrived_;
  if (is_grant) free_slots();
  if (arrived_ - first_used_ == kSlots) copy_older_half();
  return true;
}

bool Link::book_message(int s, const EagerHeader* header) {
  Incoming& in = in_[s];
  if (in.arrived - in.popped == kUnreadMax) return false;
  Unread& message = in.unread[in.arrived++ % kUnreadMax];
  message = {header, arrived_};
  used_[arrived_ % kSlots] = &message;
  return true;
}

bool Link::book_grant(int s, const EagerHeader& header) {
  Outgoing& out = out_[s];
  if (out.grants - out.grants_used == kGrants) return false;
  Grant& grant = out.granted[out.grants++ % kGrants];
  grant.signature = header.signature;
  std::memcpy(&grant.place, payload_of(header, sizeof(grant.place)), sizeof(grant.place));
  used_[arrived_ % kSlots] = nullptr;
  return true;
}

bool Link::refuse(std::string reason) {
  give_up(ErrorCode::protocol, std::move(reason),
          "check that all ranks run the same version of Ropewalk");
  return false;
}

/// So that what nobody reads yet does not keep from coming what somebody waits for.
void Link::copy_older_half() {
  for (uint32_t number = first_used_; number != first_used_ + kSlots / 2; ++number) {
    Unread*& used = used_[number % kSlots];
    if (used == nullptr) continue;
    SlotCopy* copy = find_copy();
    if (copy == nullptr) break;  // no memory: it has to be read first
    std::memcpy(copy->bytes.data(), used->header, kSlotBytes);
    used->header = reinterpret_cast<const EagerHeader*>(copy);
    used = nullptr;
  }
  free_slots();
}

/// Null where there is no memory.
Link::SlotCopy* Link::find_copy() {
  try {
    if (free_copies_.empty()) {
      free_copies_.reserve(copies_.size() + 1);  // giving back allocates nothing
      copies_.push_back(std::make_unique<SlotCopy>());
      free_copies_.push_back(copies_.back().get());
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  SlotCopy* copy = free_copies_.back();
  free_copies_.pop_back();
  return copy;
}

Posted Link::put_slice(int s, const std::byte* source, const MemoryRegistration* memory,
                       size_t bytes, const RemoteBuffer& place, uint64_t offset, uint64_t cookie) {
  const Posted posted = transport_.put({.peer = peer_,
                                        .source = source,
                                        .source_memory = memory,
                                        .bytes = bytes,
                                        .key = place.key,
                                        .offset = place.offset + offset,
                                        .notice = make_notice(NoticeKind::data, s),
                                        .cookie = cookie});
  accepted(posted);
  return posted;
}

void Link::send_probe(const Probe& probe) {
  if (probing_) return;
  std::byte* slot = outbox(kProbeOffset);
  std::memcpy(slot, &probe, sizeof(probe));
  const Posted posted =
      put_small(slot, sizeof(probe), kProbeOffset, make_notice(NoticeKind::probe, 0), kProbeCookie);
  probing_ = accepted(posted) && posted == Posted::posted;
}

bool Link::on_notice(uint32_t notice) {
  const int s = notice_stream(notice);
  const uint32_t amount = notice_amount(notice);
  if (s >= kStreams) return false;
  switch (notice_kind(notice)) {
    case NoticeKind::eager:
      return peer_inbox_here_ == nullptr && has_arrived() && book_arrival();
    case NoticeKind::credit:
      out_[s].credited += amount;
      return out_[s].sent - out_[s].credited <= kUnreadMax;
    case NoticeKind::slots:
      freed_ += amount;
      return sent_ - freed_ <= kSlots;
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
  }
  return false;
}

bool Link::end_arrived(uint32_t which) {
  if (which != kEndOfUrgent && which != kEndOfSlices) return false;
  ends_ |= which;
  return true;
}

bool Link::flush_owed() {
  for (uint32_t left = owing_ & ~(kOwesEnds | kOwesSlots); left != 0; left &= left - 1) {
    const int s = std::countr_zero(left);
    Incoming& in = in_[s];
    if (in.credits_owed >= kCreditBatch && notify(NoticeKind::credit, s, in.credits_owed))
      in.credits_owed = 0;
    const uint32_t consumed = std::min(in.consumed_owed, kNoticeAmountMax);
    if (consumed > 0 && notify(NoticeKind::consumed, s, consumed)) in.consumed_owed -= consumed;
    if (in.credits_owed < kCreditBatch && in.consumed_owed == 0) owing_ &= ~(1u << s);
  }
  const uint32_t freed = first_used_ - freed_told_;
  if ((owing_ & kOwesSlots) != 0 && (freed < kSlots / 2 || notify(NoticeKind::slots, 0, freed))) {
    if (freed >= kSlots / 2) freed_told_ = first_used_;
    owing_ &= ~kOwesSlots;
  }
  for (const uint32_t which : {kEndOfUrgent, kEndOfSlices}) {
    const uint32_t owed = owing_ & which << kEndsShift;
    if (owed != 0 && notify(NoticeKind::end, 0, which)) owing_ &= ~owed;
  }
  return owing_ == 0 || lost_;
}

LinkTable::LinkTable(int rank, std::vector<Transport*> transports, std::vector<int> route)
    : rank_(rank),
      transports_(std::move(transports)),
      route_(std::move(route)),
      links_(route_.size()) {
  std::ranges::copy_if(transports_, std::back_inserter(networks_),
                       [](Transport* transport) { return transport->mapped_memory() == nullptr; });
}

Link& LinkTable::to(int peer) {
  assert(peer >= 0 && peer < size() && peer != rank_);
  auto& link = links_[static_cast<size_t>(peer)];
  if (!link) {
    link = std::make_unique<Link>(transport_to(peer), transport_index(peer), peer, puts_under_way_);
    open_.push_back(link.get());
  }
  return *link;
}

void LinkTable::answer(int peer) {
  const Link* const link = find(peer);
  if (!has_ended_ || (link != nullptr && link->has_begun())) return to(peer).connect();
  const LinkHello gone{.version = kWireVersion, .inbox_bytes = 0, .inbox = {}};
  transport_to(peer).connect(peer, std::as_bytes(std::span(&gone, 1)));
}

}  // namespace ropewalk

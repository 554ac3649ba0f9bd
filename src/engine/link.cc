#include "engine/link.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace ropewalk {

static_assert(kStreams + 2 <= 32, "owing_ has a bit per stream, and two more");

/// What nobody has read is forgotten.
Link::~Link() {
  for (Incoming& in : in_)
    while (in.popped != in.arrived) connection_.release(in.unread[in.popped++ % kUnreadMax]);
  connection_.detach(communicator_);
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
  header.stream = static_cast<uint8_t>(s);
  header.credits = static_cast<uint8_t>(in_[s].credits_owed);
  header.communicator = communicator_;
  if (!connection_.fill_slot(header, payload, payload_bytes)) return false;
  in_[s].credits_owed = 0;
  return true;
}

Posted Link::put_slice(int s, const std::byte* source, const MemoryRegistration* memory,
                       size_t bytes, const RemoteBuffer& place, uint64_t offset, uint64_t cookie) {
  return connection_.put({.peer = connection_.peer(),
                          .source = source,
                          .source_memory = memory,
                          .bytes = bytes,
                          .key = place.key,
                          .offset = place.offset + offset,
                          .notice = make_notice(NoticeKind::data, communicator_, s),
                          .cookie = cookie});
}

bool Link::book_grant(int s, const EagerHeader& header) {
  Outgoing& out = out_[s];
  if (out.grants - out.grants_used == kGrants) return false;
  if (!granted_) granted_.reset(new (std::nothrow) Grants);
  if (!granted_) return false;
  Grant& grant = (*granted_)[s][out.grants++ % kGrants];
  grant.signature = header.signature;
  std::memcpy(&grant.place, payload_of(header, sizeof(grant.place)), sizeof(grant.place));
  return true;
}

bool Link::end_arrived(uint32_t which) {
  if (which != kEndOfUrgent && which != kEndOfSlices) return false;
  ends_ |= which;
  return true;
}

bool Link::flush() {
  for (uint32_t left = owing_ & ~kOwesEnds; left != 0; left &= left - 1) {
    const int s = std::countr_zero(left);
    Incoming& in = in_[s];
    if (in.credits_owed >= kCreditBatch && notify(NoticeKind::credit, s, in.credits_owed))
      in.credits_owed = 0;
    const uint32_t consumed = std::min(in.consumed_owed, kNoticeAmountMax);
    if (consumed > 0 && notify(NoticeKind::consumed, s, consumed)) in.consumed_owed -= consumed;
    if (in.credits_owed < kCreditBatch && in.consumed_owed == 0) owing_ &= ~(1u << s);
  }
  for (const uint32_t which : {kEndOfUrgent, kEndOfSlices}) {
    const uint32_t owed = owing_ & which << kEndsShift;
    if (owed != 0 && notify(NoticeKind::end, 0, which)) owing_ &= ~owed;
  }
  return owing_ == 0;
}

LinkTable::LinkTable(Connections& connections, uint16_t communicator, int rank,
                     std::vector<int> members)
    : connections_(connections),
      communicator_(communicator),
      rank_(rank),
      members_(std::move(members)),
      links_(members_.size()) {
  assert(members_[static_cast<size_t>(rank)] == connections.rank());
  connections_.add(communicator_, *this);
}

bool LinkTable::are_all_mapped() const {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_ && !is_mapped(peer)) return false;
  return true;
}

Link& LinkTable::to(int peer) {
  auto& link = links_[static_cast<size_t>(peer)];
  if (!link) {
    link = std::make_unique<Link>(connections_.to(member(peer)), communicator_, peer);
    open_.push_back(link.get());
    if (has_ended_) link->end();
  }
  return *link;
}

void LinkTable::end() {
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank_) find_or_make(peer);
  has_ended_ = true;
  for (Link* link : open_) link->end();
}

}  // namespace ropewalk

#include "engine/connection.h"

#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "engine/link.h"

namespace ropewalk {

static_assert(kSlotBytesMax <= kUrgentPutBytesMax);

Connection::Connection(Connections& all, int peer)
    : all_(all),
      peer_(peer),
      transport_(all.transport_to(peer)),
      capabilities_(transport_.capabilities()),
      mapped_memory_(transport_.mapped_memory()),
      slot_bytes_(slot_bytes(mapped())),
      boxes_(all.take_inbox(peer)) {}

void Connection::attach(uint16_t communicator, Link& link) {
  assert(find(communicator) == nullptr && communicator < kCommunicatorsMax);
  const size_t place = table_index_of(communicator);
  if (place >= links_.size()) links_.resize(place + 1);
  links_[place] = &link;
  owing_.reserve(links_.size());  // to owe allocates nothing
}

void Connection::detach(uint16_t communicator) {
  assert(find(communicator) != nullptr);
  std::erase(owing_, std::exchange(links_[table_index_of(communicator)], nullptr));
}

void Connection::connect() {
  if (connecting_) return;
  connecting_ = true;
  const LinkHello hello{kWireVersion, static_cast<uint32_t>(inbox_bytes(mapped())),
                        boxes_.memory->key(), boxes_.offset};
  try {
    transport_.connect(peer_, std::as_bytes(std::span(&hello, 1)));
  } catch (const Error& error) {
    // Perhaps the peer has just died: the engine waits a little for the monitor to say so.
    give_up(error.code(), "no link can be made: " + error.failure().reason, error.failure().advice);
  }
}

bool Connection::try_ready() {
  if (!connecting_) return false;
  const auto bytes = transport_.hello_of(peer_);
  if (!bytes || lost_) return false;
  LinkHello hello;
  if (bytes->size() == sizeof(hello)) std::memcpy(&hello, bytes->data(), sizeof(hello));
  const bool is_known = bytes->size() == sizeof(hello) && hello.version == kWireVersion;
  if (is_known && hello.inbox_bytes == 0) {
    has_left_ = true;
    return false;
  }
  if (!is_known || hello.inbox_bytes != inbox_bytes(mapped())) {
    give_up(ErrorCode::refused, "it speaks another version of the engine protocol",
            "run the same version of Ropewalk on every rank");
    return false;
  }
  peer_memory_ = hello.memory;
  peer_offset_ = hello.offset;
  if (mapped()) {
    peer_inbox_here_ = map(peer_memory_, peer_offset_, inbox_bytes(true));
    if (peer_inbox_here_ == nullptr) return false;
  }
  ready_ = true;
  return true;
}

void Connection::give_up(ErrorCode code, std::string reason, std::string advice) {
  failure_ = Failure{code, "link", std::move(reason), std::move(advice)};
  lost_ = true;
}

bool Connection::refuse(std::string reason) {
  give_up(ErrorCode::protocol, std::move(reason),
          "check that all ranks run the same version of Ropewalk");
  return false;
}

/// Nobody looks into the inbox, nor writes there, before the transport goes on.
void Connection::restart() {
  probing_ = false;
  if (mapped()) return;
  for (Link* link : links_)
    if (link != nullptr) link->forget();
  owing_.clear();
  used_.fill(nullptr);
  free_copies_.clear();
  for (const auto& copy : copies_) free_copies_.push_back(copy.get());
  for (uint32_t i = 0; i < kSlots; ++i) const_cast<EagerHeader*>(slot(i))->number = 0;
  sent_ = freed_ = arrived_ = first_used_ = freed_told_ = 0;
  owes_slots_ = lacks_slots_ = false;
}

std::byte* Connection::map(RemoteKey key, uint64_t offset, size_t bytes) {
  if (lost_) return nullptr;
  std::byte* address = mapped() ? mapped_memory_->map(peer_, key, offset, bytes) : nullptr;
  if (address == nullptr) {
    LossReason why = transport_.why_lost(peer_);
    give_up(ErrorCode::unavailable, std::move(why.text), std::move(why.advice));
  }
  return address;
}

// ---- Sending ----

bool Connection::find_freed() {
  if (!sees_inbox()) return false;
  const uint32_t freed =
      std::atomic_ref(freed_count(peer_inbox_here_)).load(std::memory_order_acquire);
  if (sent_ - freed > kSlots) return refuse("it gave back slots that were not used");
  freed_ = freed;
  lacks_slots_ = sent_ - freed_ == kSlots;
  return !lacks_slots_;
}

void Connection::send_probe(const Probe& probe) {
  if (probing_) return;
  std::byte* slot = outbox(kProbeOffset);
  std::memcpy(slot, &probe, sizeof(probe));
  const uint32_t notice = make_notice(NoticeKind::probe, probe.communicator, 0);
  const Posted posted = put_small(slot, sizeof(probe), kProbeOffset, notice, kProbeCookie);
  probing_ = accepted(posted) && posted == Posted::posted;
}

bool Connection::flush_owed() {
  const uint32_t freed = first_used_ - freed_told_;
  if (owes_slots_ && (freed < kSlots / 2 || notify(NoticeKind::slots, 0, 0, freed))) {
    if (freed >= kSlots / 2) freed_told_ = first_used_;
    owes_slots_ = false;
  }
  std::erase_if(owing_, [](Link* link) { return link->flush(); });
  return (owing_.empty() && !owes_slots_) || lost_;
}

// ---- Receiving ----

bool Connection::book_arrivals() {
  bool found = false;
  while (has_arrived() && book_arrival()) found = true;
  return found;
}

/// What it reads it reads once: the peer may write there.
bool Connection::book_arrival() {
  const EagerHeader& header = *slot(arrived_);
  const uint16_t communicator = header.communicator;
  const int stream = header.stream;
  Link* const link = find_or_make(communicator);
  if (link == nullptr && all_.is_retired(communicator)) return skip_arrival();
  if (link == nullptr || stream >= kStreams)
    return refuse("it sent a message of communicator " + std::to_string(communicator) +
                  " on stream " + std::to_string(stream) + ", which this rank does not know");
  if (!mapped()) freed_ += header.slots;
  if (sent_ - freed_ > kSlots) return refuse("it gave back slots that it was not sent");
  used_[arrived_ % kSlots] = nullptr;
  if (!link->book(stream, header, arrived_))
    return refuse("it sent more than it may, or gave back what it was not sent");
  ++arrived_;
  if (used_[(arrived_ - 1) % kSlots] == nullptr) free_slots();
  if (arrived_ - first_used_ == kSlots) copy_older_half();
  return true;
}

/// Of a communicator that has ended.
bool Connection::skip_arrival() {
  if (!mapped()) freed_ += slot(arrived_)->slots;
  used_[arrived_++ % kSlots] = nullptr;
  free_slots();
  if (arrived_ - first_used_ == kSlots) copy_older_half();
  return true;
}

Link* Connection::find_or_make(uint16_t communicator) {
  if (Link* const link = find(communicator)) return link;
  LinkTable* const table = all_.find_table(communicator);
  const int peer = table == nullptr ? -1 : table->rank_of(peer_);
  try {
    return peer < 0 ? nullptr : &table->to(peer);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

/// So that what nobody reads yet does not keep from coming what somebody waits for.
void Connection::copy_older_half() {
  for (uint32_t number = first_used_; number != first_used_ + kSlots / 2; ++number) {
    Unread*& used = used_[number % kSlots];
    if (used == nullptr) continue;
    SlotCopy* copy = find_copy();
    if (copy == nullptr) break;  // no memory: it has to be read first
    std::memcpy(copy->bytes.data(), used->header, slot_bytes_);
    used->header = reinterpret_cast<const EagerHeader*>(copy);
    used->slot = kSlots;
    used = nullptr;
  }
  free_slots();
}

/// Null where there is no memory.
Connection::SlotCopy* Connection::find_copy() {
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

bool Connection::on_notice(uint32_t notice) {
  const NoticeKind kind = notice_kind(notice);
  const uint32_t amount = notice_amount(notice);
  const int stream = notice_stream(notice);
  if (kind == NoticeKind::eager) return !sees_inbox() && has_arrived() && book_arrival();
  if (kind == NoticeKind::slots) {
    freed_ += amount;
    return sent_ - freed_ <= kSlots;
  }
  const uint16_t communicator = notice_communicator(notice);
  Link* const link = find_or_make(communicator);
  if (link == nullptr && all_.is_retired(communicator)) return true;
  return link != nullptr && stream < kStreams && link->on_notice(kind, stream, amount);
}

// ---- The table ----

Connections::Connections(int rank, std::vector<Transport*> transports, std::vector<int> route)
    : rank_(rank),
      transports_(std::move(transports)),
      route_(std::move(route)),
      connections_(route_.size()) {
  std::ranges::copy_if(transports_, std::back_inserter(networks_),
                       [](Transport* transport) { return transport->mapped_memory() == nullptr; });
  for (Transport* transport : transports_) inboxes_.emplace_back(*transport);
}

Connection& Connections::to(int peer) {
  assert(peer >= 0 && peer < size() && peer != rank_);
  auto& connection = connections_[static_cast<size_t>(peer)];
  if (!connection) {
    connection = std::make_unique<Connection>(*this, peer);
    open_.push_back(connection.get());
  }
  return *connection;
}

bool Connections::find_ready() {
  if (ready_ == open_.size()) return false;
  const size_t before = ready_;
  const auto is_ready = [](Connection* connection) { return connection->ready(); };
  ready_ = static_cast<size_t>(std::ranges::count_if(open_, is_ready));
  return ready_ != before;
}

void Connections::restart(const std::vector<int>& departed) {
  for (const int peer : departed) {
    if (Connection* const connection = find(peer)) {
      connection->lose();
      std::erase(open_, connection);
    }
    transport_to(peer).drop(peer);
  }
  for (Connection* connection : open_) connection->restart();
  for (Transport* transport : transports_) transport->set_stopped(false);
  puts_under_way_ = 0;
  ready_ = 0;
}

void Connections::add(uint16_t communicator, LinkTable& table) {
  assert(find_table(communicator) == nullptr && communicator < kCommunicatorsMax);
  const size_t place = table_index_of(communicator);
  if (place >= tables_.size()) tables_.resize(place + 1);
  tables_[place] = &table;
  // Numbers are used in a circle: those half of it ago are no longer on any way.
  retired_[communicator] = false;
  retired_[(communicator + kCommunicatorsMax / 2) % kCommunicatorsMax] = false;
}

void Connections::remove(uint16_t communicator) {
  tables_[table_index_of(communicator)] = nullptr;
  retired_[communicator] = true;
}

void Connections::answer_connects() {
  const LinkHello gone{.version = kWireVersion, .inbox_bytes = 0, .memory = {}, .offset = 0};
  wanted_.clear();
  for (Transport* transport : transports_) transport->find_wanted(wanted_);
  for (const int peer : wanted_) {
    const Connection* const connection = find(peer);
    if (has_left_ && (connection == nullptr || !connection->has_begun()))
      transport_to(peer).connect(peer, std::as_bytes(std::span(&gone, 1)));
    else
      to(peer).connect();
  }
}

void Connections::unmap_deregistered() {
  for (Transport* transport : transports_)
    if (MappedMemory* mapped = transport->mapped_memory()) mapped->unmap_deregistered();
  for (Connection* connection : open_) connection->find_inbox_again();
}

}  // namespace ropewalk

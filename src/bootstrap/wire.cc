#include "bootstrap/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <concepts>
#include <limits>

#include "bootstrap/codec.h"
#include "ropewalk/call.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int kObjectsMax = 1 << 20;  // NUMA nodes, caches of a host

template <class T, class Message>
concept Is = std::same_as<std::remove_const_t<T>, Message>;

/// Before the first of a frame: all of its texts are empty.
const PeerRecord& no_record() {
  static const PeerRecord& none = *[] {  // threads may outlive what is static
    auto* record = new PeerRecord;
    record->transport.clear();
    return record;
  }();
  return none;
}

void fields(auto& c, Is<Hello> auto& hello) {
  c.magic();
  c.integer(hello.version);
  c.code(hello.purpose, Purpose::join, Purpose::join_running);
  c.zeros(1);
  c.integer(hello.from, 0u, kRanksMax - 1);
  c.integer(hello.to, 0u, kRanksMax - 1);
  c.integer(hello.stream, 0u, kStreamsMax - 1);
  c.zeros(8);
  c.raw(hello.public_key);
}

void fields(auto& c, Is<Reply> auto& reply) {
  c.magic();
  c.integer(reply.version);
  c.zeros(6);
  c.raw(reply.public_key);
}

void fields(auto& c, Is<Answer> auto& answer) {
  c.code(answer.result, HandshakeResult::accepted, HandshakeResult::already);
  c.zeros(7);
  c.raw(answer.mac);
}

void fields(auto& c, Is<FrameHeader> auto& header) {
  c.integer(header.payload_bytes, 0u, static_cast<uint32_t>(kFramePayloadMax));
  c.code(header.type, FrameType::join, FrameType::redirect);
}

/// What `like`, the record before it in the frame, has as well goes without saying.
void fields(auto& c, Is<PeerRecord> auto& record, const PeerRecord& like = no_record()) {
  c.integer(record.rank, 0, static_cast<int>(kRanksMax - 1));
  c.integer(record.pid);
  c.text_after(like.host_name, record.host_name, kNameBytesMax);
  c.text_after(like.host_id, record.host_id, kNameBytesMax);
  c.texts_after(like.addresses, record.addresses, kAddressesMax, kAddressBytesMax);
  c.text_after(like.transport, record.transport, kNameBytesMax);
  c.text_after(like.cpus, record.cpus, kTransportBytesMax);
  c.texts_by_name_after(like.transport_infos, record.transport_infos, kTransportInfosMax,
                        kTransportBytesMax);
  c.integer(record.locality.numa_node, -1, kObjectsMax);
  c.integer(record.locality.cache, -1, kObjectsMax);
  c.raw(record.verify_key);
  c.raw(record.leave_commitment);
  c.require(within_limits(record));
}

void fields(auto& c, Is<Records> auto& all) {
  c.until_end(all.records, [&c](auto& record, const PeerRecord* before) {
    fields(c, record, before == nullptr ? no_record() : *before);
  });
}

void fields(auto& c, Is<Join> auto& join) {
  c.integer(join.size, 1u, kRanksMax);
  c.until_end(join.joiners, [&c](auto& joiner, const Joiner* before) {
    c.integer(joiner.remaining_ms);
    fields(c, joiner.record, before == nullptr ? no_record() : before->record);
  });
}

void fields(auto& c, Is<Place> auto& place) {
  c.integer(place.rank, 0, static_cast<int>(kRanksMax - 1));
  c.integer(place.ranks, 1, static_cast<int>(kRanksMax));
  c.raw(place.world);
  c.raw(place.table);
  fields(c, place.parent);
  c.text(place.coordinator, kAddressBytesMax);
}

void fields(auto& c, Is<Redirect> auto& redirect) {
  fields(c, redirect.to);
}

void fields(auto& c, Is<Failure> auto& failure) {
  c.code(failure.code, static_cast<ErrorCode>(1), ErrorCode::no_quorum);
  c.integer(failure.rank, 0, static_cast<int>(kRanksMax - 1));
  c.ranks(failure.peers, failure.peer);
  c.text(failure.operation, kOperationBytesMax);
  c.text(failure.reason, kReasonBytesMax);
  c.text(failure.advice, kReasonBytesMax);
}

const Failure& failure_in(const JobFailure& said) {
  return said;
}
Failure& failure_in(JobFailure& said) {
  return said;
}

void fields(auto& c, Is<JobFailure> auto& said) {
  fields(c, failure_in(said));
  c.integer(said.epoch);
}

void fields(auto& c, Is<Heartbeat> auto& heartbeat) {
  c.integer(heartbeat.interval_ms);
}

void fields(auto& c, Is<Wait> auto& wait) {
  c.code(wait.operation, Collective{0}, static_cast<Collective>(kCollectives - 1));
  c.integer(wait.channel, uint8_t{0}, static_cast<uint8_t>(kChannels - 1));
  c.integer(wait.sequence);
  c.boolean(wait.any);
  c.boolean(wait.awaited);
  c.integer(wait.since_ns, int64_t{0}, kWaitAgeMax_ns);
  c.integer(wait.peer_count, uint8_t{0}, Wait::kPeersMax);
  for (size_t i = 0; i < std::min(wait.peer_count, Wait::kPeersMax); ++i)
    c.integer(wait.peers[i], 0, static_cast<int>(kRanksMax - 1));
}

void fields(auto& c, Is<RankWaits> auto& answer) {
  c.integer(answer.calls);
  auto count = static_cast<uint32_t>(answer.waits.size());
  c.integer(count, 0u, static_cast<uint32_t>(kWaitsMax));
  c.resize(answer.waits, count);
  for (auto& wait : answer.waits) fields(c, wait);
}

void fields(auto& c, Is<CallsMade> auto& calls) {
  c.integer(calls.count);
  c.integer(calls.digest);
  c.text(calls.last, kOperationBytesMax);
}

void fields(auto& c, Is<Waits> auto& waits) {
  c.integer(waits.rank, 0u, kRanksMax - 1);
  fields(c, waits.answer);
}

void fields(auto& c, Is<Leave> auto& leave) {
  c.integer(leave.rank, 0u, kRanksMax - 1);
  fields(c, leave.calls);
  c.raw(leave.token);
}

/// What messages of a part begin with.
void part_fields(auto& c, auto& message) {
  c.integer(message.part, 1u, std::numeric_limits<uint32_t>::max());
  c.integer(message.rank, 0u, kRanksMax - 1);
}

void fields(auto& c, Is<PartFailure> auto& said) {
  part_fields(c, said);
  fields(c, said.failure);
}

void fields(auto& c, Is<PartLeave> auto& leave) {
  part_fields(c, leave);
  fields(c, leave.calls);
}

void fields(auto& c, Is<PartWaits> auto& waits) {
  part_fields(c, waits);
  fields(c, waits.answer);
}

void fields(auto& c, Is<PartQuestion> auto& question) {
  c.integer(question.part, 1u, std::numeric_limits<uint32_t>::max());
}

void fields(auto& c, Is<Ballot> auto& ballot) {
  c.integer(ballot.round);
  c.integer(ballot.leader, 0u, kRanksMax - 1);
}

void fields(auto& c, Is<Decision> auto& decision) {
  int first = -1;
  c.ranks(decision.members, first);
  c.ranks(decision.ended, first, kEndedRunsMax);
  c.integer(decision.bits);
  c.integer(decision.call);
  c.text(decision.text, kReasonBytesMax);
}

/// Each kind has what it says.
void fields(auto& c, Is<AgreementMessage> auto& message) {
  using Kind = AgreementMessage::Kind;
  c.code(message.kind, Kind::prepare, Kind::ask);
  c.integer(message.instance);
  fields(c, message.ballot);
  if (message.kind == Kind::promise) {
    c.integer(message.contribution.bits);
    c.integer(message.contribution.call);
    c.text(message.contribution.text, kReasonBytesMax);
    fields(c, message.accepted_ballot);
  }
  const bool has_accepted = message.kind == Kind::promise && message.accepted_ballot.round > 0;
  if (has_accepted || message.kind == Kind::accept || message.kind == Kind::decided)
    fields(c, message.decision);
}

void fields(auto& c, Is<Newcomers> auto& newcomers) {
  c.integer(newcomers.rank, 0u, kRanksMax - 1);
  c.integer(newcomers.revision);
  auto count = static_cast<uint32_t>(newcomers.numbers.size());
  c.integer(count, 0u, kNewcomersMax);
  c.resize(newcomers.numbers, count);
  for (auto& number : newcomers.numbers) c.integer(number);
}

void fields(auto& c, Is<Admission> auto& admission) {
  int first = -1;
  c.text(admission.unique_id, kReasonBytesMax);
  c.integer(admission.rank, 1, static_cast<int>(kRanksMax - 1));
  c.integer(admission.size, 2, static_cast<int>(kRanksMax));
  c.integer(admission.remaining_ms);
  c.integer(admission.epoch, 1, std::numeric_limits<int>::max());
  c.ranks(admission.former_ranks, first);
  c.text(admission.reason, kReasonBytesMax);
  c.require(admission.former_ranks.size() <= static_cast<size_t>(admission.rank) &&
            admission.rank < admission.size);
}

template <class T>
concept IsSigned = requires(const T& said) {
  said.message;
  said.signature;
};

void fields(auto& c, IsSigned auto& said) {
  fields(c, said.message);
  c.raw(said.signature);
}

}  // namespace

std::string describe(const PeerRecord& record) {
  return describe(record, record.rank);
}

std::string describe(const PeerRecord& record, int rank) {
  return fmt::format("rank {} ({}, pid {})", rank, record.host_name, record.pid);
}

bool is_same_record(const PeerRecord& a, const PeerRecord& b) {
  const auto sorted = [](PeerRecord record) {
    std::ranges::sort(record.addresses);
    return encode(record);
  };
  return sorted(a) == sorted(b);
}

bool within_limits(const PeerRecord& record) {
  return record.rank >= 0 && static_cast<uint32_t>(record.rank) < kRanksMax &&
         record.host_name.size() <= kNameBytesMax && record.host_id.size() <= kNameBytesMax &&
         record.addresses.size() <= kAddressesMax &&
         std::ranges::all_of(record.addresses,
                             [](const std::string& a) { return a.size() <= kAddressBytesMax; }) &&
         record.transport.size() <= kNameBytesMax &&
         record.transport_infos.size() <= kTransportInfosMax &&
         transport_bytes(record) <= kTransportBytesMax;
}

size_t transport_bytes(const PeerRecord& record) {
  size_t bytes = record.cpus.size();
  for (const auto& [name, info] : record.transport_infos) bytes += name.size() + info.size();
  return bytes;
}

Bytes encode(const PeerRecord& record, const PeerRecord& like) {
  Writer out;
  fields(out, record, like);
  return out.take();
}

template <class Message>
Bytes encode(const Message& message) {
  Writer out;
  fields(out, message);
  return out.take();
}
template Bytes encode(const Hello&);
template Bytes encode(const Reply&);
template Bytes encode(const Answer&);
template Bytes encode(const PeerRecord&);
template Bytes encode(const Records&);
template Bytes encode(const JobFailure&);
template Bytes encode(const Leave&);
template Bytes encode(const Waits&);
template Bytes encode(const PartFailure&);
template Bytes encode(const PartLeave&);
template Bytes encode(const PartWaits&);
template Bytes encode(const Newcomers&);

template <class Message>
std::optional<Message> decode(ByteSpan bytes) {
  Reader in(bytes);
  Message message{};
  fields(in, message);
  if (!in.done()) return {};
  return message;
}
template std::optional<Hello> decode(ByteSpan);
template std::optional<Reply> decode(ByteSpan);
template std::optional<Answer> decode(ByteSpan);
template std::optional<FrameHeader> decode(ByteSpan);
template std::optional<Join> decode(ByteSpan);
template std::optional<Place> decode(ByteSpan);
template std::optional<Redirect> decode(ByteSpan);
template std::optional<Records> decode(ByteSpan);
template std::optional<Heartbeat> decode(ByteSpan);
template std::optional<Signed<JobFailure>> decode(ByteSpan);
template std::optional<Signed<Leave>> decode(ByteSpan);
template std::optional<Signed<Waits>> decode(ByteSpan);
template std::optional<PartQuestion> decode(ByteSpan);
template std::optional<AgreementMessage> decode(ByteSpan);
template std::optional<Signed<PartFailure>> decode(ByteSpan);
template std::optional<Signed<PartLeave>> decode(ByteSpan);
template std::optional<Signed<PartWaits>> decode(ByteSpan);
template std::optional<Signed<Newcomers>> decode(ByteSpan);
template std::optional<Admission> decode(ByteSpan);

Bytes frame(FrameType type, ByteSpan payload) {
  assert(payload.size() <= kFramePayloadMax);
  const FrameHeader header{static_cast<uint32_t>(payload.size()), type};
  Writer out(kFrameHeaderBytes + payload.size());
  fields(out, header);
  out.raw(payload);
  return out.take();
}
Bytes frame(const Join& join) {
  return frame(FrameType::join, encode(join));
}
std::vector<Bytes> join_frames(uint32_t size, std::span<const Joiner> joiners) {
  std::vector<Bytes> frames;
  Join join{size, {}};
  size_t bytes = 0;  // at most: as if nothing was shared
  for (const Joiner& joiner : joiners) {
    const size_t more = sizeof joiner.remaining_ms + encode(joiner.record).size();
    if (!join.joiners.empty() && bytes + more > kFramePayloadMax)
      frames.push_back(frame(std::exchange(join, {size, {}})));
    bytes = (join.joiners.empty() ? sizeof size : bytes) + more;
    join.joiners.push_back(joiner);
  }
  if (!join.joiners.empty()) frames.push_back(frame(join));
  return frames;
}
Bytes frame(const Place& place) {
  return frame(FrameType::place, encode(place));
}
Bytes frame(const Redirect& redirect) {
  return frame(FrameType::redirect, encode(redirect));
}
Bytes frame(const Records& records) {
  return frame(FrameType::records, encode(records));
}
Bytes frame(const Heartbeat& heartbeat) {
  return frame(FrameType::heartbeat, encode(heartbeat));
}
Bytes frame(const PartQuestion& question) {
  return frame(FrameType::part_who_waits, encode(question));
}
Bytes frame(const AgreementMessage& message) {
  return frame(FrameType::agreement, encode(message));
}
Bytes frame(const Admission& admission) {
  return frame(FrameType::admission, encode(admission));
}
template <class Message>
Bytes frame(const Signed<Message>& said) {
  return frame(type_of(said.message), encode(said));
}
template Bytes frame(const Signed<JobFailure>&);
template Bytes frame(const Signed<Leave>&);
template Bytes frame(const Signed<Waits>&);
template Bytes frame(const Signed<PartFailure>&);
template Bytes frame(const Signed<PartLeave>&);
template Bytes frame(const Signed<PartWaits>&);
template Bytes frame(const Signed<Newcomers>&);

}  // namespace ropewalk::bootstrap

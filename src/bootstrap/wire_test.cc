#include "bootstrap/wire.h"

#include <gtest/gtest.h>

#include "bootstrap/codec.h"
#include "bootstrap/statements.h"

namespace ropewalk::bootstrap {
namespace {

PeerRecord full_record() {
  PeerRecord record;
  record.rank = 7;
  record.pid = 0x123456789;
  record.host_name = std::string(kNameBytesMax, 'h');
  record.host_id = std::string(kNameBytesMax, 'i');
  record.addresses.assign(kAddressesMax, std::string(kAddressBytesMax, 'a'));
  record.transport = std::string(kNameBytesMax, 't');
  record.cpus = "0-3,8";
  for (size_t i = 0; i < kTransportInfosMax; ++i)
    record.transport_infos[std::string(1, static_cast<char>('a' + i))] = "told";
  record.transport_infos["a"] += std::string(kTransportBytesMax - transport_bytes(record), '\0');
  record.locality = {3, 12};
  record.verify_key.fill(std::byte{7});
  record.leave_commitment.fill(std::byte{8});
  return record;
}

ByteSpan payload_of(const Bytes& frame) {
  return ByteSpan(frame).subspan(kFrameHeaderBytes);
}

/// Every proper prefix and every extension must be refused.
template <class Decode>
void expect_exact(ByteSpan payload, Decode decode) {
  EXPECT_TRUE(decode(payload));
  for (size_t length = 0; length < payload.size(); ++length)
    ASSERT_FALSE(decode(payload.first(length))) << length;
  Bytes longer(payload.begin(), payload.end());
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode(longer));
}

Bytes failure_frame(const Failure& failure) {
  return frame(Signed<JobFailure>{{failure, 7}});
}

std::optional<Failure> decode_failure(ByteSpan payload) {
  const auto said = decode<Signed<JobFailure>>(payload);
  return said && said->message.epoch == 7 ? std::optional<Failure>(said->message) : std::nullopt;
}

TEST(Wire, FramesHaveTheirHeader) {
  const Bytes bytes = frame(Signed<Leave>{{0x01020304 & 0xfffff, {}}});
  const auto header = decode<FrameHeader>(ByteSpan(bytes).first(kFrameHeaderBytes));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->type, FrameType::leave);
  EXPECT_EQ(header->payload_bytes, bytes.size() - kFrameHeaderBytes);
  EXPECT_EQ(bytes[5], std::byte{0x04}) << "little-endian";
}

TEST(Wire, JoinRoundTrip) {
  const Bytes bytes = frame(Join{33, {{29000, full_record()}}});
  ASSERT_LE(bytes.size(), kFrameHeaderBytes + kFramePayloadMax);
  const auto join = decode<Join>(payload_of(bytes));
  ASSERT_TRUE(join);
  EXPECT_EQ(join->size, 33u);
  ASSERT_EQ(join->joiners.size(), 1u);
  EXPECT_EQ(join->joiners[0].remaining_ms, 29000u);
  const PeerRecord& record = join->joiners[0].record;
  EXPECT_EQ(record.pid, 0x123456789);
  EXPECT_EQ(record.addresses, full_record().addresses);
  EXPECT_EQ(record.transport, full_record().transport);
  EXPECT_EQ(record.cpus, full_record().cpus);
  EXPECT_EQ(record.transport_infos, full_record().transport_infos);
  EXPECT_EQ(record.verify_key, full_record().verify_key);
  Join small{2, {{1, {}}}};
  small.joiners[0].record.rank = 1;
  expect_exact(payload_of(frame(small)), decode<Join>);
}

TEST(Wire, JoinsOfManyRanksAreInFewFrames) {
  std::vector<Joiner> joiners;
  for (int rank = 0; rank < 100; ++rank) {
    joiners.push_back({static_cast<uint32_t>(rank), full_record()});
    joiners.back().record.rank = rank;
  }
  int known = 0;
  const std::vector<Bytes> frames = join_frames(100, joiners);
  EXPECT_LT(frames.size(), 100u);
  for (const Bytes& frame : frames) {
    EXPECT_LE(frame.size(), kFrameHeaderBytes + kFramePayloadMax);
    const Join join = decode<Join>(payload_of(frame)).value();
    EXPECT_EQ(join.size, 100u);
    for (const Joiner& joiner : join.joiners) {
      EXPECT_EQ(joiner.remaining_ms, static_cast<uint32_t>(known));
      EXPECT_EQ(joiner.record.rank, known++);
    }
  }
  EXPECT_EQ(known, 100);
  EXPECT_TRUE(join_frames(100, {}).empty());
}

TEST(Wire, ARecordRepeatsNothingOfTheOneBefore) {
  PeerRecord first, second;
  first.rank = 1;
  first.host_name = std::string(kNameBytesMax, 'h');
  first.addresses = {"10.0.0.1:5000", "10.0.1.1:5000"};
  first.transport_infos = {{"a", "same"}, {"b", "of the first"}};
  second = first;
  second.rank = 2;
  second.host_name = first.host_name.substr(1) + "x";
  second.addresses = {"10.0.0.1:5077", "10.0.1.1", "[::1]:5077"};
  second.transport_infos = {{"a", "same"}, {"c", "of the second"}};
  const Bytes like = encode(second, first);
  EXPECT_LT(like.size(), encode(second).size() - 250);
  Bytes both = encode(first);
  both.insert(both.end(), like.begin(), like.end());
  const auto decoded = decode<Records>(both);
  ASSERT_TRUE(decoded);
  ASSERT_EQ(decoded->records.size(), 2u);
  EXPECT_EQ(decoded->records[1].host_name, second.host_name);
  EXPECT_EQ(decoded->records[1].addresses, second.addresses);
  EXPECT_EQ(decoded->records[1].transport_infos, second.transport_infos);
  EXPECT_EQ(encode(*decoded), both);
  EXPECT_FALSE(decode<Records>(like)) << "the first shares with nothing";
  const Bytes repeating = encode(second);
  both.resize(encode(first).size());
  both.insert(both.end(), repeating.begin(), repeating.end());
  EXPECT_FALSE(decode<Records>(both)) << "it says what goes without saying";
}

TEST(Wire, ATextSharesAllItCan) {
  const auto is_read = [](std::string_view before, uint8_t shared, const std::string& rest) {
    Writer out;
    out.integer(shared);
    out.text(rest, rest.size());
    const Bytes bytes = out.take();
    Reader in(bytes);
    std::string text;
    in.text_after(before, text, 300);
    return in.done() && text == std::string(before.substr(0, shared)) + rest;
  };
  EXPECT_TRUE(is_read("abc", 3, "") && is_read("abc", 3, "d") && is_read("abc", 1, ""));
  EXPECT_TRUE(is_read("abc", 1, "x") && is_read("", 0, "x"));
  EXPECT_FALSE(is_read("abc", 1, "b") || is_read("abc", 0, "abc") || is_read("abc", 4, ""));
  const std::string before(300, 'x');
  EXPECT_TRUE(is_read(before, 255, before.substr(255)));
  EXPECT_FALSE(is_read(before, 254, before.substr(254)) || is_read(before, 255, "yy" + before));
}

TEST(Wire, TransportInfosAreInOrderAndBounded) {
  PeerRecord record;
  record.rank = 1;
  record.transport_infos = {{"a", ""}, {"b", ""}};
  Bytes bytes = frame(Records{{record}});
  EXPECT_TRUE(decode<Records>(payload_of(bytes)));
  constexpr size_t kBehind = 2 * sizeof(int32_t) + sizeof(VerifyKey) + sizeof(LeaveCommitment);
  bytes[bytes.size() - kBehind - 4] = std::byte{'a'};
  EXPECT_FALSE(decode<Records>(payload_of(bytes))) << "a name twice";
  record.transport_infos["b"] = std::string(kTransportBytesMax - 2, 'x');
  EXPECT_TRUE(within_limits(record));
  record.cpus = "0";
  EXPECT_FALSE(within_limits(record));
}

TEST(Wire, PlaceAndRecordRoundTrip) {
  Place place;
  place.rank = 17;
  place.ranks = 3;
  place.coordinator = "10.0.0.1:20000";
  place.world[3] = std::byte{9};
  place.table[31] = std::byte{8};
  place.parent.rank = 2;
  place.parent.addresses = {"127.0.0.1:5", "[::1]:5"};
  const auto decoded = decode<Place>(payload_of(frame(place)));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->rank, place.rank);
  EXPECT_EQ(decoded->ranks, place.ranks);
  EXPECT_EQ(decoded->coordinator, place.coordinator);
  EXPECT_EQ(decoded->world, place.world);
  EXPECT_EQ(decoded->table, place.table);
  EXPECT_EQ(decoded->parent.addresses, place.parent.addresses);
  expect_exact(payload_of(frame(place)), decode<Place>);
  expect_exact(payload_of(frame(Records{{place.parent}})), decode<Records>);
}

TEST(Wire, RecordsAreOneOrMore) {
  Records all;
  EXPECT_FALSE(decode<Records>({}));
  for (int rank = 0; rank < 2; ++rank) {
    all.records.push_back(full_record());
    all.records.back().rank = rank;
    const Bytes whole = frame(all);
    const ByteSpan bytes = payload_of(whole);
    const auto decoded = decode<Records>(bytes);
    ASSERT_TRUE(decoded);
    ASSERT_EQ(decoded->records.size(), all.records.size());
    EXPECT_EQ(decoded->records.back().rank, rank);
    EXPECT_EQ(decoded->records.back().locality, full_record().locality);
    EXPECT_EQ(decoded->records.back().leave_commitment, full_record().leave_commitment);
    EXPECT_FALSE(decode<Records>(bytes.first(bytes.size() - 1)));
  }
}

TEST(Wire, RecordsOfManyRanksAreInFewFrames) {
  std::vector<PeerRecord> table(100, full_record());
  for (size_t rank = 0; rank < table.size(); ++rank) table[rank].rank = static_cast<int>(rank);
  const std::vector<Bytes> frames = record_frames(PeerTable(table));
  const size_t bytes = encode(table[0]).size() * table.size();
  EXPECT_LE(frames.size(), bytes / (kFramePayloadMax / 2) + 1);
  int known = 0;
  for (const Bytes& frame : frames) {
    EXPECT_LE(frame.size(), kFrameHeaderBytes + kFramePayloadMax);
    const Records records = decode<Records>(payload_of(frame)).value();
    for (const PeerRecord& record : records.records) EXPECT_EQ(record.rank, known++);
  }
  EXPECT_EQ(known, 100);
}

TEST(Wire, FailureRoundTripCutsLongTexts) {
  Failure failure{ErrorCode::peer_lost, "control", std::string(5000, 'r'), "advice", 3, 1};
  const auto decoded = decode_failure(payload_of(failure_frame(failure)));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->code, ErrorCode::peer_lost);
  EXPECT_EQ(decoded->reason.size(), kReasonBytesMax);
  EXPECT_EQ(decoded->rank, 3);
  EXPECT_EQ(decoded->peer, 1);
  failure.reason = "short";
  expect_exact(payload_of(failure_frame(failure)), decode_failure);
}

TEST(Wire, AFailureNamesManyRanksInRuns) {
  Failure failure{ErrorCode::peer_lost, "o", "r", "a", 0, 4, {4, 5, 6, 7, 9}};
  Bytes bytes = failure_frame(failure);
  auto decoded = decode_failure(payload_of(bytes));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->peer, 4);
  EXPECT_EQ(decoded->peers, failure.peers);
  expect_exact(payload_of(bytes), decode_failure);
  bytes[kFrameHeaderBytes + 15] = std::byte{8};  // where the second run begins
  EXPECT_FALSE(decode_failure(payload_of(bytes))) << "two runs that could be one";
  bytes[kFrameHeaderBytes + 15] = std::byte{2};
  EXPECT_FALSE(decode_failure(payload_of(bytes))) << "they descend";
  bytes = failure_frame(failure);
  bytes[kFrameHeaderBytes + 11] = std::byte{0};
  EXPECT_FALSE(decode_failure(payload_of(bytes))) << "a run of none";
  bytes[kFrameHeaderBytes + 14] = std::byte{0xff};
  EXPECT_FALSE(decode_failure(payload_of(bytes))) << "a rank beyond the last";
  decoded =
      decode_failure(payload_of(failure_frame(Failure{ErrorCode::timeout, "o", "r", "a", 0, -1})));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->peer, -1);
  EXPECT_TRUE(decoded->peers.empty());
  // Every other rank of a large job, with the longest texts.
  failure.reason = failure.advice = failure.operation = std::string(5000, 'x');
  failure.peers.clear();
  for (int rank = 0; rank < 4000; rank += 2) failure.peers.push_back(rank);
  bytes = failure_frame(failure);
  ASSERT_LE(bytes.size(), kFrameHeaderBytes + kFramePayloadMax);
  decoded = decode_failure(payload_of(bytes));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->peers.size(), kRankRunsMax);
}

TEST(Wire, WhatIsSignedRoundTrip) {
  Signed<Leave> leave{{3, {5, 6, "barrier"}}};
  leave.signature.fill(std::byte{1});
  leave.signature[63] = std::byte{2};
  const auto left = decode<Signed<Leave>>(payload_of(frame(leave)));
  ASSERT_TRUE(left);
  EXPECT_EQ(left->message.calls.last, "barrier");
  EXPECT_EQ(left->signature, leave.signature);
  expect_exact(payload_of(frame(leave)), decode<Signed<Leave>>);
}

TEST(Wire, OutOfRangeIsRefused) {
  Bytes bytes = failure_frame(Failure{ErrorCode::peer_lost, "o", "r", "a", 0, 0});
  bytes[kFrameHeaderBytes] = std::byte{0};  // ErrorCode::ok is no failure
  EXPECT_FALSE(decode_failure(payload_of(bytes)));
  bytes[kFrameHeaderBytes] = std::byte{200};
  EXPECT_FALSE(decode_failure(payload_of(bytes)));
  EXPECT_FALSE(decode_failure(payload_of(failure_frame({ErrorCode::timeout, "o", "r", "", -1, 0}))))
      << "nobody says it";
  EXPECT_FALSE(decode<Signed<Leave>>(payload_of(frame(Signed<Leave>{{kRanksMax, {}}}))));
  EXPECT_FALSE(decode<Signed<Waits>>(payload_of(frame(Signed<Waits>{{kRanksMax, {}}}))));
  PeerRecord record;
  record.rank = static_cast<int>(kRanksMax);
  EXPECT_FALSE(within_limits(record));
  Bytes header = {std::byte{1}, std::byte{0x40}, std::byte{0}, std::byte{0}, std::byte{7}};
  EXPECT_FALSE(decode<FrameHeader>(header)) << "a payload of 16385 bytes";
  header = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{19}};
  EXPECT_FALSE(decode<FrameHeader>(header)) << "an unknown type";
}

TEST(Wire, WhatIsSaidOfPartsRoundTrips) {
  const Failure failure{ErrorCode::aborted, "o", "r", "a", 2, 1, {1, 3}};
  const auto said = decode<Signed<PartFailure>>(
      payload_of(frame(Signed<PartFailure>{{0xfffffffe, 9, failure}, {std::byte{7}}})));
  ASSERT_TRUE(said);
  EXPECT_EQ(said->message.part, 0xfffffffe);
  EXPECT_EQ(said->message.rank, 9u);
  EXPECT_EQ(said->message.failure.peers, failure.peers);
  EXPECT_EQ(said->signature[0], std::byte{7});
  const auto leave =
      decode<Signed<PartLeave>>(payload_of(frame(Signed<PartLeave>{{7, 3, {5, 6, "barrier"}}})));
  ASSERT_TRUE(leave);
  EXPECT_EQ(leave->message.calls.last, "barrier");
  const auto waits = decode<Signed<PartWaits>>(
      payload_of(frame(Signed<PartWaits>{{7, 3, {0, 8, {{.any = true}}}}})));
  ASSERT_TRUE(waits);
  EXPECT_EQ(waits->message.answer.waits.size(), 1u);
  EXPECT_EQ(decode<PartQuestion>(payload_of(frame(PartQuestion{7})))->part, 7u);

  EXPECT_FALSE(decode<PartQuestion>(payload_of(frame(PartQuestion{0})))) << "that is the job";
  EXPECT_FALSE(decode<Signed<PartLeave>>(payload_of(frame(Signed<PartLeave>{{0, 3, {}}}))));
  EXPECT_FALSE(decode<Signed<PartLeave>>(payload_of(frame(Signed<PartLeave>{{7, kRanksMax, {}}}))));
}

TEST(Wire, WaitsRoundTrip) {
  Wait collective{
      .operation = Collective::all_reduce, .sequence = 7, .awaited = true, .since_ns = 5};
  for (int& peer : collective.peers) peer = 100 + collective.peer_count++;
  const Wait message{.operation = Collective::recv, .channel = 1, .peers = {3}, .peer_count = 1};
  Signed<Waits> few{{2, {0, 8, {collective, message, {.any = true}}}}};
  few.signature[63] = std::byte{2};
  const auto decoded = decode<Signed<Waits>>(payload_of(frame(few)));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->message.rank, 2u);
  EXPECT_EQ(decoded->message.answer.calls, 8u);
  EXPECT_EQ(decoded->message.answer.waits, few.message.answer.waits);
  EXPECT_EQ(decoded->signature, few.signature);
  expect_exact(payload_of(frame(few)), decode<Signed<Waits>>);

  Signed<Waits> many{{2, {0, 8, std::vector<Wait>(kWaitsMax, collective)}}};
  const Bytes bytes = frame(many);
  EXPECT_LE(bytes.size(), kFrameHeaderBytes + kFramePayloadMax);
  EXPECT_TRUE(decode<Signed<Waits>>(payload_of(bytes)));
  many.message.answer.waits.push_back(message);
  EXPECT_FALSE(decode<Signed<Waits>>(payload_of(frame(many)))) << "too many";
}

Decision full_decision() {
  Decision decision{{}, {}, 0x123456789abcdef0, 2, std::string(kReasonBytesMax, 't')};
  for (size_t run = 0; run < kRankRunsMax; ++run)
    decision.members.push_back(static_cast<int>(3 * run));
  for (size_t run = 0; run < kEndedRunsMax; ++run)
    decision.ended.push_back(static_cast<int>(3 * run + 1));
  return decision;
}

TEST(Wire, AgreementMessagesRoundTrip) {
  using Kind = AgreementMessage::Kind;
  const Decision decision{{0, 1, 2, 5}, {4}, 6, 1, "text"};
  const std::vector<AgreementMessage> messages = {
      {.kind = Kind::prepare, .instance = 1, .ballot = {2, 3}},
      {.kind = Kind::promise,
       .instance = 0xffffffff,
       .ballot = {2, 3},
       .contribution = {~uint64_t{0}, 255, "brought"}},
      {.kind = Kind::promise,
       .instance = 1,
       .ballot = {0xffffffff, kRanksMax - 1},
       .contribution = {5, 1, ""},
       .accepted_ballot = {1, 0},
       .decision = decision},
      {.kind = Kind::accept, .instance = 1, .ballot = {2, 3}, .decision = decision},
      {.kind = Kind::accepted, .instance = 1, .ballot = {2, 3}},
      {.kind = Kind::decided, .instance = 1, .decision = decision},
      {.kind = Kind::refused, .instance = 1, .ballot = {2, 3}},
      {.kind = Kind::gave_up, .instance = 1},
      {.kind = Kind::ask, .instance = 1}};
  for (const AgreementMessage& message : messages) {
    const Bytes bytes = frame(message);
    EXPECT_EQ(bytes[4], std::byte{15});
    EXPECT_EQ(decode<AgreementMessage>(payload_of(bytes)), message);
    expect_exact(payload_of(bytes), decode<AgreementMessage>);
  }
}

TEST(Wire, TheLongestAgreementMessageFitsIntoAFrame) {
  AgreementMessage message{.kind = AgreementMessage::Kind::promise,
                           .instance = 1,
                           .ballot = {2, 3},
                           .contribution = {1, 1, std::string(kReasonBytesMax, 'c')},
                           .accepted_ballot = {1, 0},
                           .decision = full_decision()};
  const size_t payload_bytes = 13 + 8 + 1 + 2 + kReasonBytesMax + 8 +  // contribution, ballot
                               2 + 8 * kRankRunsMax + 2 + 8 * kEndedRunsMax + 8 + 1 + 2 +
                               kReasonBytesMax;
  ASSERT_LE(payload_bytes, kFramePayloadMax);
  EXPECT_EQ(frame(message).size(), kFrameHeaderBytes + payload_bytes);
  EXPECT_EQ(decode<AgreementMessage>(payload_of(frame(message))), message);
  const AgreementMessage full = message;
  message.contribution.text += 'c';
  message.decision.text += 't';
  message.decision.members.push_back(kRanksMax - 1);
  message.decision.ended.push_back(kRanksMax - 1);
  EXPECT_EQ(decode<AgreementMessage>(payload_of(frame(message))), full) << "cut";
}

TEST(Wire, AgreementMessagesOutOfRangeAreRefused) {
  AgreementMessage message{.kind = AgreementMessage::Kind::prepare, .instance = 1};
  const auto decodes = [&](size_t at, int value) {
    Bytes bytes = frame(message);
    bytes[kFrameHeaderBytes + at] = static_cast<std::byte>(value);
    return decode<AgreementMessage>(payload_of(bytes)).has_value();
  };
  EXPECT_FALSE(decodes(0, 0)) << "kinds are counted from 1";
  EXPECT_TRUE(decodes(0, 8));
  EXPECT_FALSE(decodes(0, 9)) << "no kind";
  EXPECT_FALSE(decodes(11, 0x10)) << "a leader beyond the last rank";
  message.kind = AgreementMessage::Kind::decided;
  message.decision.members = {1, 2};
  EXPECT_TRUE(decodes(19, 3)) << "how many ranks the run has";
  EXPECT_FALSE(decodes(19, 0)) << "a run of none";
  EXPECT_FALSE(decodes(14, 5)) << "more runs than are said";
}

TEST(Wire, WhatIsSaidOfNewcomersRoundTrips) {
  const Signed<Newcomers> said{{.rank = 3, .revision = 7, .numbers = {1, 5, 0xffffffff}}, {}};
  const auto heard = decode<Signed<Newcomers>>(payload_of(frame(said)));
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->message.rank, 3u);
  EXPECT_EQ(heard->message.revision, 7u);
  EXPECT_EQ(heard->message.numbers, said.message.numbers);
  expect_exact(payload_of(frame(said)), decode<Signed<Newcomers>>);
  Signed<Newcomers> many = said;
  many.message.numbers.resize(kNewcomersMax + 1);
  EXPECT_FALSE(decode<Signed<Newcomers>>(payload_of(frame(many))));

  const Admission admission{.unique_id = "id",
                            .rank = 4,
                            .size = 6,
                            .remaining_ms = 1000,
                            .epoch = 2,
                            .former_ranks = {0, 1, 2, 5},
                            .reason = "why"};
  expect_exact(payload_of(frame(admission)), decode<Admission>);
  const auto admitted = decode<Admission>(payload_of(frame(admission)));
  ASSERT_TRUE(admitted);
  EXPECT_EQ(admitted->unique_id, "id");
  EXPECT_EQ(admitted->former_ranks, admission.former_ranks);
  EXPECT_EQ(admitted->epoch, 2);
  const auto decodes_with_rank = [&](int rank) {
    Bytes bytes = frame(admission);
    bytes[kFrameHeaderBytes + sizeof(uint16_t) + admission.unique_id.size()] =
        static_cast<std::byte>(rank);
    return decode<Admission>(payload_of(bytes)).has_value();
  };
  EXPECT_TRUE(decodes_with_rank(5));
  EXPECT_FALSE(decodes_with_rank(3)) << "a newcomer with a member's rank";
  EXPECT_FALSE(decodes_with_rank(6)) << "a rank beyond the last";
}

/// docs/protocol.md shows these bytes.
TEST(Wire, TheHelloOfTheProtocol) {
  const auto bytes = [](std::string_view text) {
    const auto raw = std::as_bytes(std::span(text));
    return Bytes(raw.begin(), raw.end());
  };
  using namespace std::string_view_literals;
  Hello hello;
  hello.from = 1;
  hello.public_key.fill(std::byte{0xaa});
  const auto encoded = encode(hello);
  EXPECT_EQ(Bytes(encoded.begin(), encoded.begin() + 32),
            bytes("ropewalk\x0f\0\x01\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv));
}

TEST(Wire, HandshakeRoundTrip) {
  Hello hello;
  hello.purpose = Purpose::socket;
  hello.from = 3;
  hello.to = 1;
  hello.stream = 2;
  hello.public_key[31] = std::byte{5};
  const auto bytes = encode(hello);
  const auto decoded = decode<Hello>(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->purpose, Purpose::socket);
  EXPECT_EQ(decoded->from, 3u);
  EXPECT_EQ(decoded->public_key, hello.public_key);
  EXPECT_EQ(bytes.size(), kHelloBytes);
  EXPECT_EQ(encode(Reply{}).size(), kReplyBytes);
  EXPECT_EQ(encode(Answer{}).size(), kAnswerBytes);
  expect_exact(bytes, decode<Hello>);
  expect_exact(encode(Reply{}), decode<Reply>);
  expect_exact(encode(Answer{HandshakeResult::yield, {}}), decode<Answer>);
  auto bad = bytes;
  bad[0] = std::byte{'R'};
  EXPECT_FALSE(decode<Hello>(bad));
  bad = bytes;
  bad[10] = std::byte{7};  // purpose
  EXPECT_FALSE(decode<Hello>(bad));
}

}  // namespace
}  // namespace ropewalk::bootstrap

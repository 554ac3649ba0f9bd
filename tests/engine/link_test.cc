// Two links facing each other, over memory that is mapped and over memory that is not.
#include "engine/link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "transports/fake/fake_fabric.h"
#include "transports/fake/forwarding_transport.h"

namespace ropewalk {
namespace {

constexpr size_t kLineBytes = 64;
constexpr int kStream = stream_of(2, 1);
constexpr uint16_t kCommunicator = 5;

FakeOptions options_of(bool mapped) {
  FakeOptions options;
  options.load_store = options.needs_registration = mapped;
  options.full_probability = 0;
  return options;
}

class LinkTest : public ::testing::TestWithParam<bool> {
 protected:
  LinkTest()
      : fabric(2, 7, options_of(GetParam())),
        of_0(0, {&fabric.transport(0)}, {0, 0}),
        of_1(1, {&fabric.transport(1)}, {0, 0}),
        there(to_there, kCommunicator, 1),
        here(to_here, kCommunicator, 0) {
    to_there.connect();
    to_here.connect();
    while (fabric.advance()) {
    }
    EXPECT_TRUE(there.ready() && here.ready());
  }

  static bool mapped() { return GetParam(); }

  /// Lets everything arrive, and books it. False where a notice made no sense.
  bool settle() {
    while (fabric.advance()) {
    }
    const bool sane_there = book(0, of_0);
    const bool sane = book(1, of_1) && sane_there;
    EXPECT_TRUE(!sane || !(of_0.has_puts_under_way() || of_1.has_puts_under_way()));
    return sane;
  }

  EagerHeader header_of(size_t bytes) {
    EagerHeader header;
    header.signature.sequence = ++headers_;
    header.bytes = bytes;
    return header;
  }
  /// Sends `bytes` bytes of value `value` from rank 0 to rank 1.
  bool send(size_t bytes, int value = 0, int stream = kStream) {
    const std::vector<std::byte> payload(bytes, static_cast<std::byte>(value));
    return there.send(stream, header_of(bytes), payload.data(), bytes);
  }

  FakeFabric fabric;
  Connections of_0, of_1;
  Connection& to_there = of_0.to(1);
  Connection& to_here = of_1.to(0);
  Link there, here;  // over these

 private:
  bool book(int rank, Connections& connections) {
    Connection& connection = connections.to(1 - rank);
    std::array<Completion, 16> completions;
    bool sane = true;
    while (const size_t count = fabric.transport(rank).poll(completions))
      for (size_t i = 0; i < count; ++i) {
        if (completions[i].kind == Completion::Kind::notice)
          sane &= connection.on_notice(completions[i].notice);
        if (completions[i].kind == Completion::Kind::put_done) connections.put_done();
        if (completions[i].cookie == kProbeCookie) connection.probe_sent();
      }
    return sane;
  }

  uint32_t headers_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Mapped, LinkTest, ::testing::Bool());

TEST_P(LinkTest, MessagesComeInOrderManyTimesRoundTheRing) {
  for (uint32_t i = 0; i < 70'000; ++i) {
    ASSERT_EQ(here.front(kStream), nullptr) << "an old message in slot " << i % kSlots;
    const size_t bytes = i % kMappedEagerBytesMax;
    ASSERT_TRUE(there.can_send(kStream));
    ASSERT_TRUE(send(bytes, static_cast<int>(i)));
    ASSERT_TRUE(settle());
    const EagerHeader* header = here.front(kStream);
    ASSERT_NE(header, nullptr);
    ASSERT_EQ(header->number, static_cast<uint16_t>(i + 1));
    ASSERT_EQ(header->signature.sequence, i + 1);
    ASSERT_EQ(header->bytes, bytes);
    if (bytes > 0) {
      const std::byte* payload = payload_of(*header, bytes);
      ASSERT_EQ(payload[0], static_cast<std::byte>(i));
      ASSERT_EQ(payload[bytes - 1], static_cast<std::byte>(i));
    }
    here.pop(kStream);
    EXPECT_TRUE(to_here.flush());
    ASSERT_TRUE(settle());
  }
}

TEST_P(LinkTest, EightMessagesWaitAndCreditsComeBackByFour) {
  for (uint32_t i = 0; i < kUnreadMax; ++i) {
    ASSERT_TRUE(there.can_send(kStream));
    ASSERT_TRUE(send(8));
  }
  EXPECT_FALSE(there.can_send(kStream));
  EXPECT_TRUE(there.can_send(kStream + 1));
  ASSERT_TRUE(settle());
  for (uint32_t popped = 1; popped <= kUnreadMax; ++popped) {
    ASSERT_NE(here.front(kStream), nullptr);
    EXPECT_EQ(here.front(kStream)->number, popped);
    here.pop(kStream);
    EXPECT_TRUE(to_here.flush());
    ASSERT_TRUE(settle());
    EXPECT_EQ(there.can_send(kStream), popped >= kCreditBatch) << popped;
  }
  EXPECT_EQ(here.front(kStream), nullptr);
  for (uint32_t i = 0; i < kUnreadMax; ++i) ASSERT_TRUE(there.can_send(kStream) && send(8));
  EXPECT_FALSE(there.can_send(kStream));
}

// Else what one operation sends, and nobody reads, would keep from another what it waits for.
TEST_P(LinkTest, UnreadMessagesThatFillTheRingMakeRoomForOthers) {
  for (int round = 0; round < 3; ++round) {
    for (const int stream : {0, 1})
      for (uint32_t i = 0; i < kUnreadMax; ++i) {
        ASSERT_TRUE(there.can_send(stream));
        ASSERT_TRUE(send(20 + i, static_cast<int>(i), stream));
      }
    EXPECT_FALSE(there.can_send(2)) << "the ring has " << kSlots << " slots";
    ASSERT_TRUE(settle());
    EXPECT_FALSE(to_there.finds_slots());
    EXPECT_EQ(here.front(2), nullptr);
    EXPECT_TRUE(to_here.flush());
    ASSERT_TRUE(settle());
    EXPECT_EQ(to_there.finds_slots(), mapped());
    EXPECT_FALSE(to_there.finds_slots()) << "once";
    ASSERT_TRUE(there.can_send(2));
    ASSERT_TRUE(send(8, 7, 2));
    ASSERT_TRUE(settle());
    ASSERT_NE(here.front(2), nullptr);
    EXPECT_EQ(payload_of(*here.front(2), 8)[0], std::byte{7});
    here.pop(2);
    for (uint32_t i = 0; i < kUnreadMax; ++i)
      for (const int stream : {1, 0}) {
        const EagerHeader* header = here.front(stream);
        ASSERT_NE(header, nullptr);
        ASSERT_EQ(header->bytes, 20 + i);
        EXPECT_EQ(payload_of(*header, header->bytes)[19], static_cast<std::byte>(i));
        here.pop(stream);
      }
    EXPECT_TRUE(to_here.flush());
    ASSERT_TRUE(settle());
  }
}

TEST_P(LinkTest, WhatFitsSharesTheLineOfTheHeader) {
  static_assert(payload_offset(0) == 48 && payload_offset(16) == 48);
  static_assert(payload_offset(17) == 64 && payload_offset(kMappedEagerBytesMax) == 64);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{16}, size_t{17}, size_t{64},
                       kMappedEagerBytesMax, eager_bytes_max(here.mapped())}) {
    ASSERT_TRUE(send(bytes, 0x5a));
    ASSERT_TRUE(settle());
    const EagerHeader* header = here.front(kStream);
    ASSERT_NE(header, nullptr);
    const std::byte* payload = payload_of(*header, bytes);
    EXPECT_EQ(payload - reinterpret_cast<const std::byte*>(header), bytes <= 16 ? 48 : 64);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(payload[i], std::byte{0x5a});
    here.pop(kStream);
  }
}

TEST_P(LinkTest, StreamsAreApart) {
  for (int s = 0; s < kStreams; ++s) ASSERT_TRUE(send(8, s, s));
  ASSERT_TRUE(settle());
  for (int s = kStreams; s-- > 0;) {
    const EagerHeader* header = here.front(s);
    ASSERT_NE(header, nullptr);
    EXPECT_EQ(header->stream, s);
    EXPECT_EQ(payload_of(*header, 8)[7], static_cast<std::byte>(s));
    here.pop(s);
    EXPECT_EQ(here.front(s), nullptr);
  }
}

TEST_P(LinkTest, CommunicatorsAreApart) {
  Link there_too(to_there, 9, 4), here_too(to_here, 9, 3);
  const std::byte value{9};
  for (uint32_t i = 0; i < kUnreadMax; ++i) ASSERT_TRUE(send(8));
  ASSERT_TRUE(there_too.can_send(kStream)) << "credits are its own";
  ASSERT_TRUE(there_too.send(kStream, header_of(1), &value, 1));
  ASSERT_TRUE(settle());
  ASSERT_NE(here_too.front(kStream), nullptr);
  EXPECT_EQ(payload_of(*here_too.front(kStream), 1)[0], value);
  here_too.pop(kStream);
  EXPECT_EQ(here_too.front(kStream), nullptr);
  for (uint32_t i = 0; i < kUnreadMax; ++i) {
    ASSERT_NE(here.front(kStream), nullptr);
    EXPECT_EQ(here.front(kStream)->bytes, 8u);
    here.pop(kStream);
  }
  EXPECT_TRUE(there_too.notify_slice(0));
  ASSERT_TRUE(settle());
  EXPECT_EQ(here_too.slices_arrived(0), 1u);
  EXPECT_EQ(here.slices_arrived(0), 0u);
}

// It may have been made by the peer first.
TEST_P(LinkTest, ALinkIsMadeWhenItsFirstMessageComes) {
  LinkTable table(of_1, 9, 1, {7, 1, 0});
  Link there_too(to_there, 9, 1);
  EXPECT_TRUE(there_too.notify_slice(0));
  ASSERT_TRUE(settle());
  ASSERT_NE(table.find(2), nullptr);
  EXPECT_EQ(table.find(2)->slices_arrived(0), 1u);
  EXPECT_EQ(table.open().size(), 1u);
}

TEST_P(LinkTest, AMessageOfAnUnknownCommunicatorIsRefused) {
  Link there_too(to_there, 9, 1);
  ASSERT_TRUE(there_too.send(kStream, header_of(0), nullptr, 0));
  EXPECT_EQ(settle(), mapped()) << "where the inbox is mapped no notice tells of it";
  EXPECT_EQ(here.front(kStream), nullptr);
  ASSERT_TRUE(here.failure().has_value());
  EXPECT_EQ(here.failure()->code, ErrorCode::protocol);
  EXPECT_NE(here.failure()->reason.find("communicator 9"), std::string::npos);
}

// The ring stood still where the last slot that was free brought one of those.
TEST_P(LinkTest, MessagesOfACommunicatorThatHasEndedAreSkipped) {
  { LinkTable ended(of_1, 9, 1, {7, 1, 0}); }
  Link there_too(to_there, 9, 1);
  for (const int stream : {0, 1})
    for (uint32_t i = 0; i < kUnreadMax - 1u + (stream == 0 ? 1 : 0); ++i)
      ASSERT_TRUE(send(8, 3, stream));
  ASSERT_TRUE(there_too.send(kStream, header_of(0), nullptr, 0));
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.front(2), nullptr);
  EXPECT_TRUE(to_here.flush());
  ASSERT_TRUE(settle());
  ASSERT_TRUE(there.can_send(2));
  ASSERT_TRUE(send(8, 7, 2));
  ASSERT_TRUE(settle());
  ASSERT_NE(here.front(2), nullptr);
  EXPECT_EQ(payload_of(*here.front(2), 8)[0], std::byte{7});
  EXPECT_FALSE(here.failure().has_value());
}

TEST_P(LinkTest, BothDirectionsAreApart) {
  ASSERT_TRUE(send(8, 1));
  ASSERT_TRUE(here.send(kStream, header_of(0), nullptr, 0));
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.front(kStream)->bytes, 8u);
  EXPECT_EQ(there.front(kStream)->bytes, 0u);
}

TEST_P(LinkTest, APollFindsWhatNoNoticeTold) {
  EXPECT_FALSE(to_here.poll_inbox());
  ASSERT_TRUE(send(8) && send(8));
  ASSERT_TRUE(settle());
  EXPECT_EQ(to_here.poll_inbox(), mapped());
  EXPECT_FALSE(to_here.poll_inbox());
  EXPECT_EQ(here.front(kStream)->number, 1u);
}

TEST_P(LinkTest, GrantsAreUsedInOrderEightAtATime) {
  Grant grant;
  for (uint32_t i = 0; i < 3 * kGrants; ++i) {
    grant.place.offset = i;
    ASSERT_TRUE(here.can_grant(kStream));
    ASSERT_TRUE(here.send_grant(kStream, grant));
    if (i + 1 < kGrants) continue;
    EXPECT_FALSE(here.can_grant(kStream));
    ASSERT_TRUE(settle());
    ASSERT_NE(there.grant(kStream), nullptr);
    EXPECT_EQ(there.grant(kStream)->place.offset, i + 1 - kGrants);
    there.finish_grant(kStream);
    here.grant_done(kStream);
    EXPECT_TRUE(to_there.flush());
    ASSERT_TRUE(settle());
  }
}

TEST_P(LinkTest, SlicesAreCountedAndConsumed) {
  RegisteredMemory target(64);
  target.register_with(fabric.transport(1));
  const std::byte source[32] = {std::byte{1}};
  const RemoteBuffer place{target.registrations()[0]->key(), 16};
  there.expect_consumed(kStream, 3);
  EXPECT_NE(there.put_slice(kStream, source, nullptr, 32, place, 16, 0), Posted::lost);
  EXPECT_TRUE(there.notify_slice(kStream));
  EXPECT_TRUE(there.notify_slice(kStream));
  ASSERT_TRUE(settle());
  EXPECT_EQ(target.data()[32], std::byte{1});
  EXPECT_EQ(here.slices_arrived(kStream), 3u);
  for (int i = 0; i < 3; ++i) {
    here.take_slice(kStream);
    here.consume(kStream);
  }
  EXPECT_EQ(here.slices_arrived(kStream), 0u);
  EXPECT_TRUE(to_here.flush());
  ASSERT_TRUE(settle());
  EXPECT_EQ(there.consumed(kStream), there.to_be_consumed(kStream));
}

TEST_P(LinkTest, MoreIsConsumedThanANoticeCanTell) {
  const uint32_t slices = 2 * kNoticeAmountMax + 5;
  for (uint32_t i = 0; i < slices; ++i) here.consume(kStream);
  for (int turn = 0; turn < 3; ++turn) {
    to_here.flush();
    ASSERT_TRUE(settle());
  }
  EXPECT_TRUE(to_here.flush());
  EXPECT_EQ(there.consumed(kStream), slices);
}

TEST_P(LinkTest, NoticesThatMakeNoSenseAreRefused) {
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::data, kCommunicator, kStreams)));
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::data, kCommunicator + 1, 0)));
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::data, kCommunicatorsMax - 1, 0)));
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::end, kCommunicator, 0, 3)));
  EXPECT_FALSE(to_here.on_notice(0));
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind{0}, kCommunicator, 0)));
  // There is no message; and where messages are looked for nobody tells of them.
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::eager, kCommunicator, kStream)));
  // Nothing was sent.
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::credit, kCommunicator, kStream)));
  EXPECT_FALSE(to_here.on_notice(make_notice(NoticeKind::slots, 0, 0)));
}

TEST_P(LinkTest, MapGivesThePeersMemoryOrSaysWhyNot) {
  RegisteredMemory memory(100);
  memory.register_with(fabric.transport(1));
  const RemoteKey key = memory.registrations()[0]->key();
  if (mapped()) {
    EXPECT_EQ(there.map(key, 40, 60), memory.data() + 40);
    EXPECT_FALSE(there.lost());
  }
  EXPECT_EQ(there.map(key, 41, 60), nullptr);
  EXPECT_TRUE(there.lost());
  ASSERT_TRUE(there.failure().has_value());
  EXPECT_EQ(there.failure()->code, ErrorCode::unavailable);
  EXPECT_FALSE(send(8));
}

TEST_P(LinkTest, ProbesGoOneAtATime) {
  Signature signature;
  signature.count = 3;
  there.send_probe(signature, false);
  signature.count = 4;
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.last_probe().signature.count, 3u);
  there.send_probe(signature, false);
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.last_probe().signature.count, 4u);
}

TEST_P(LinkTest, NothingGoesToAPeerThatIsGone) {
  fabric.transport(1).drop(0);
  while (fabric.advance()) {
  }
  EXPECT_EQ(there.notify_slice(kStream), false);
  EXPECT_TRUE(there.lost());
  EXPECT_FALSE(send(8));
  EXPECT_TRUE(to_there.flush());
}

/// Counts what is registered with it, and keeps the hellos.
class Registrar final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;
  std::unique_ptr<MemoryRegistration> register_memory(const Region& region) override {
    ++registered;
    return below_.register_memory(region);
  }
  void connect(int, std::span<const std::byte> hello) override {
    LinkHello& told = hellos.emplace_back();
    ASSERT_EQ(hello.size(), sizeof told);
    std::memcpy(&told, hello.data(), sizeof told);
  }
  int registered = 0;
  std::vector<LinkHello> hellos;
};

// Each had a registration and, over shared memory, a descriptor of its own.
TEST(ConnectionsTest, InboxesOfManyPeersLieInFewPieces) {
  constexpr int kRanks = 101;
  FakeFabric fabric(kRanks, 1, {});
  Registrar transport(fabric.transport(0));
  Connections connections(0, {&transport}, std::vector<int>(kRanks, 0));
  for (int peer = 1; peer < kRanks; ++peer) {
    connections.to(peer).connect();
    if (peer == 1) {
      EXPECT_EQ(transport.registered, 1);
    }
  }
  EXPECT_EQ(transport.registered, 11) << "of 1, 1, 2, 4, 8 and 16 inboxes";
  std::set<std::pair<uint64_t, uint64_t>> places;
  for (const LinkHello& hello : transport.hellos) {
    EXPECT_LE(hello.offset + hello.inbox_bytes, hello.memory.bytes);
    EXPECT_EQ(hello.offset % kLineBytes, 0u);
    places.emplace(hello.memory.id, hello.offset);
  }
  ASSERT_EQ(places.size(), kRanks - 1u);
  for (auto place = places.begin(); std::next(place) != places.end(); ++place) {
    const auto& next = *std::next(place);
    if (next.first == place->first) {
      EXPECT_GE(next.second - place->second, transport.hellos.front().inbox_bytes);
    }
  }
}

/// A transport that is often full: nothing is lost, doubled or overtaken.
TEST(LinkOverAFullTransport, TriesAgain) {
  FakeOptions options;
  options.full_probability = 0.7;
  FakeFabric fabric(2, 3, options);
  Connections of_sender(0, {&fabric.transport(0)}, {0, 0});
  Connections of_receiver(1, {&fabric.transport(1)}, {0, 0});
  Connection& to_receiver = of_sender.to(1);
  Connection& to_sender = of_receiver.to(0);
  Link sender(to_receiver, kCommunicator, 1), receiver(to_sender, kCommunicator, 0);
  sender.connect();
  receiver.connect();
  constexpr uint32_t kMessages = 50;
  uint32_t sent = 0, got = 0;
  bool sane = true;
  for (int turn = 0; turn < 10'000 && got < kMessages; ++turn) {
    fabric.advance();
    for (int rank : {0, 1}) {
      std::array<Completion, 16> completions;
      const size_t count = fabric.transport(rank).poll(completions);
      for (size_t i = 0; i < count; ++i)
        sane &= completions[i].kind != Completion::Kind::notice ||
                (rank == 0 ? to_receiver : to_sender).on_notice(completions[i].notice);
    }
    if (!sender.ready() || !receiver.ready()) continue;
    if (sent < kMessages && sender.can_send(kStream) &&
        sender.send(kStream, {}, reinterpret_cast<const std::byte*>(&sent), sizeof(sent)))
      ++sent;
    while (const EagerHeader* header = receiver.front(kStream)) {
      uint32_t value = 0;
      std::memcpy(&value, payload_of(*header, sizeof(value)), sizeof(value));
      EXPECT_EQ(value, got++);
      receiver.pop(kStream);
    }
    to_sender.flush();
  }
  EXPECT_EQ(got, kMessages);
  EXPECT_TRUE(sane);
}

}  // namespace
}  // namespace ropewalk

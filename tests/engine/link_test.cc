// Two links facing each other, over memory that is mapped and over memory that is not.
#include "engine/link.h"

#include <gtest/gtest.h>

#include <cstring>

#include "transports/fake/fake_fabric.h"

namespace ropewalk {
namespace {

constexpr int kStream = stream_of(2, 1);

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
        there(fabric.transport(0), 0, 1, puts_of_here),
        here(fabric.transport(1), 0, 0, puts_of_there) {
    there.connect();
    here.connect();
    while (fabric.advance()) {
    }
    EXPECT_TRUE(there.ready() && here.ready());
  }

  static bool mapped() { return GetParam(); }

  /// Lets everything arrive, and books it. False where a notice made no sense.
  bool settle() {
    while (fabric.advance()) {
    }
    const bool sane_there = book(0, there, puts_of_here);
    const bool sane = book(1, here, puts_of_there) && sane_there;
    EXPECT_TRUE(!sane || puts_of_here + puts_of_there == 0u);
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

  uint32_t puts_of_here = 0, puts_of_there = 0;
  FakeFabric fabric;
  Link there;  // rank 0's link to rank 1: "to there"
  Link here;   // rank 1's link to rank 0

 private:
  bool book(int rank, Link& link, uint32_t& puts) {
    std::array<Completion, 16> completions;
    bool sane = true;
    while (const size_t count = fabric.transport(rank).poll(completions))
      for (size_t i = 0; i < count; ++i) {
        if (completions[i].kind == Completion::Kind::notice)
          sane &= link.on_notice(completions[i].notice);
        if (completions[i].kind == Completion::Kind::put_done) --puts;
        if (completions[i].cookie == kProbeCookie) link.probe_sent();
      }
    return sane;
  }

  uint32_t headers_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Mapped, LinkTest, ::testing::Bool());

TEST_P(LinkTest, MessagesComeInOrderManyTimesRoundTheRing) {
  for (uint32_t i = 0; i < 70'000; ++i) {
    ASSERT_EQ(here.front(kStream), nullptr) << "an old message in slot " << i % kSlots;
    const size_t bytes = i % kEagerBytesMax;
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
    EXPECT_TRUE(here.flush());
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
    EXPECT_TRUE(here.flush());
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
    EXPECT_FALSE(there.finds_slots());
    EXPECT_EQ(here.front(2), nullptr);
    EXPECT_TRUE(here.flush());
    ASSERT_TRUE(settle());
    EXPECT_EQ(there.finds_slots(), mapped());
    EXPECT_FALSE(there.finds_slots()) << "once";
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
    EXPECT_TRUE(here.flush());
    ASSERT_TRUE(settle());
  }
}

TEST_P(LinkTest, WhatFitsSharesTheLineOfTheHeader) {
  static_assert(payload_offset(0) == 48 && payload_offset(16) == 48);
  static_assert(payload_offset(17) == 64 && payload_offset(kEagerBytesMax) == 64);
  static_assert(64 + kEagerBytesMax <= kSlotBytes);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{16}, size_t{17}, size_t{64}, kEagerBytesMax}) {
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

TEST_P(LinkTest, BothDirectionsAreApart) {
  ASSERT_TRUE(send(8, 1));
  ASSERT_TRUE(here.send(kStream, header_of(0), nullptr, 0));
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.front(kStream)->bytes, 8u);
  EXPECT_EQ(there.front(kStream)->bytes, 0u);
}

TEST_P(LinkTest, APollFindsWhatNoNoticeTold) {
  EXPECT_FALSE(here.poll_inbox());
  ASSERT_TRUE(send(8) && send(8));
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.poll_inbox(), mapped());
  EXPECT_FALSE(here.poll_inbox());
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
    EXPECT_TRUE(there.flush());
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
  EXPECT_TRUE(here.flush());
  ASSERT_TRUE(settle());
  EXPECT_EQ(there.consumed(kStream), there.to_be_consumed(kStream));
}

TEST_P(LinkTest, MoreIsConsumedThanANoticeCanTell) {
  const uint32_t slices = 2 * kNoticeAmountMax + 5;
  for (uint32_t i = 0; i < slices; ++i) here.consume(kStream);
  for (int turn = 0; turn < 3; ++turn) {
    here.flush();
    ASSERT_TRUE(settle());
  }
  EXPECT_TRUE(here.flush());
  EXPECT_EQ(there.consumed(kStream), slices);
}

TEST_P(LinkTest, NoticesThatMakeNoSenseAreRefused) {
  EXPECT_FALSE(here.on_notice(make_notice(NoticeKind::data, kStreams)));
  EXPECT_FALSE(here.on_notice(make_notice(NoticeKind::end, 0, 3)));
  EXPECT_FALSE(here.on_notice(0));
  EXPECT_FALSE(here.on_notice(8u << 28));
  // There is no message; and where messages are looked for nobody tells of them.
  EXPECT_FALSE(here.on_notice(make_notice(NoticeKind::eager, kStream)));
  // Nothing was sent.
  EXPECT_FALSE(here.on_notice(make_notice(NoticeKind::credit, kStream)));
  EXPECT_FALSE(here.on_notice(make_notice(NoticeKind::slots, 0)));
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
  Probe probe;
  probe.signature.count = 3;
  there.send_probe(probe);
  probe.signature.count = 4;
  ASSERT_TRUE(settle());
  EXPECT_EQ(here.last_probe().signature.count, 3u);
  there.send_probe(probe);
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
  EXPECT_TRUE(there.flush());
}

/// A transport that is often full: nothing is lost, doubled or overtaken.
TEST(LinkOverAFullTransport, TriesAgain) {
  FakeOptions options;
  options.full_probability = 0.7;
  FakeFabric fabric(2, 3, options);
  uint32_t puts = 0;
  Link sender(fabric.transport(0), 0, 1, puts), receiver(fabric.transport(1), 0, 0, puts);
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
                (rank == 0 ? sender : receiver).on_notice(completions[i].notice);
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
    receiver.flush();
  }
  EXPECT_EQ(got, kMessages);
  EXPECT_TRUE(sane);
}

}  // namespace
}  // namespace ropewalk

// A peer that does not keep to the protocol, or hangs up.
#include <gtest/gtest.h>

#include <optional>

#include "transports/tcp/frame.h"
#include "transports/tcp/test_node.h"

namespace ropewalk::tcp {
namespace {

// Rank 0 is a transport; rank 1 is this test, with the bare socket.
class Stranger : public testing::TestWithParam<std::tuple<Kind, bool>> {
 protected:
  Stranger()
      : network_(2, std::get<0>(GetParam())),
        node_(0, 2, network_.source(0), {.secure = sealed()}, kRegionBytes) {
    node_.link(1);
    ConnectedSocket socket = network_.source(1).take(0, 0);
    EXPECT_TRUE(socket);
    fd_ = std::move(socket.fd);
    channel_.emplace(socket.keys);
    cipher_.emplace(socket.keys.send);
  }
  static bool sealed() { return std::get<1>(GetParam()); }
  void write(const FrameHeader& header, size_t payload) { write(frame(header, payload)); }
  /// As data should be.
  void write(const std::vector<std::byte>& bytes) { write_raw(sealed() ? record(bytes) : bytes); }
  static std::vector<std::byte> frame(const FrameHeader& header, size_t payload) {
    std::vector<std::byte> bytes(kFrameHeaderBytes + payload, std::byte{0x5a});
    encode(header, bytes.data());
    return bytes;
  }
  std::vector<std::byte> record(const std::vector<std::byte>& bytes) {
    std::vector<std::byte> record(bytes.size() + RecordCipher::kOverheadBytes);
    cipher_->seal(bytes, record.data());
    return record;
  }
  void write_raw(const std::vector<std::byte>& bytes) {
    ASSERT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// As a hello should be, whatever the frame is.
  void write_hello(const FrameHeader& header, size_t payload = 0) {
    std::vector<std::byte> sealed;
    channel_->seal(frame(header, payload), sealed);
    write_raw(sealed);
  }
  static FrameHeader hello() {
    return {FrameKind::hello, kProtocolVersion, 1, 0, 0, 1, sealed() ? 1u : 0u};
  }
  void say_hello() {
    write_hello(hello());
    ASSERT_TRUE(until([&] {
      node_.poll();
      return node_.transport.connected(1);
    }));
  }
  FrameHeader put(uint64_t offset, uint32_t bytes, uint64_t sequence) {
    return {FrameKind::put, 5, node_.memory->key().id, offset, bytes, bytes, sequence};
  }
  std::string why() {
    EXPECT_TRUE(until([&] {
      node_.poll();
      return !node_.lost.empty();
    }));
    EXPECT_EQ(node_.lost.size(), 1u);
    return node_.transport.why_lost(1).text;
  }
  // An end of the stream, not a reset: that comes where the peer said something unread.
  void hang_up() {
    std::array<std::byte, 512> hello;
    ASSERT_TRUE(until([&] { return ::recv(fd_.get(), hello.data(), hello.size(), 0) > 0; }));
    fd_.reset();
  }

  static constexpr size_t kRegionBytes = 1000;
  LocalNetwork network_;
  Node node_;
  UniqueFd fd_;
  std::optional<SecureChannel> channel_;
  std::optional<RecordCipher> cipher_;
};

TEST_P(Stranger, MayPutInside) {
  say_hello();
  write(put(990, 10, 0), 10);
  ASSERT_TRUE(until([&] {
    node_.poll();
    return node_.notices.size() == 1;
  }));
  EXPECT_EQ(node_.region[989], std::byte{0});
  EXPECT_EQ(node_.region[990], std::byte{0x5a});
}

TEST_P(Stranger, MayNotPutOutside) {
  say_hello();
  write(put(0, 4, 0), 4);
  write(put(991, 10, 1), 10);
  EXPECT_EQ(why(), "it sent a frame outside registered memory");
  EXPECT_EQ(node_.notices.size(), 1u);  // what came before counts
  EXPECT_EQ(node_.region[991], std::byte{0});
}

TEST_P(Stranger, MayNotOverflowTheOffset) {
  say_hello();
  write(put(~uint64_t{0} - 4, 10, 0), 10);
  EXPECT_EQ(why(), "it sent a frame outside registered memory");
}

TEST_P(Stranger, MayNotUseAKeyThatHasGone) {
  say_hello();
  const FrameHeader header = put(0, 10, 0);
  node_.memory.reset();
  const auto again = node_.transport.register_memory({node_.region.data(), 1000, -1, 0});
  EXPECT_NE(again->key().id, header.key);
  write(header, 10);
  EXPECT_EQ(why(), "it sent a frame outside registered memory");
}

TEST_P(Stranger, IsStoppedWhenTheRegionGoesMidFrame) {
  say_hello();
  write(put(0, 1000, 0), 500);
  ASSERT_TRUE(until([&] {
    node_.poll();
    return node_.region[499] == std::byte{0x5a};
  }));
  node_.memory.reset();
  write(std::vector<std::byte>(500, std::byte{0x11}));
  EXPECT_EQ(why(), "it sent a frame outside registered memory");
  EXPECT_EQ(node_.region[500], std::byte{0});
}

TEST_P(Stranger, SendsGarbage) {
  say_hello();
  write(std::vector<std::byte>(1000, std::byte{0x77}));
  EXPECT_EQ(why(), "it sent bytes that are no frame");
}

TEST_P(Stranger, SendsHellosWrong) {
  FrameHeader header = hello();
  header.notice = kProtocolVersion + 1;
  write_hello(header);
  EXPECT_NE(why().find("another version"), std::string::npos);
}

TEST_P(Stranger, IsAnotherRank) {
  FrameHeader header = hello();
  header.key = 2;
  write_hello(header);
  EXPECT_EQ(why(), "it sent the hello of another rank or stream");
}

TEST_P(Stranger, SendsALongHello) {
  FrameHeader header = hello();
  header.bytes = kHelloBytesMax + 1;
  write_hello(header);
  EXPECT_EQ(why(), "it sent a hello that is too long");
}

TEST_P(Stranger, SaysHelloTwice) {
  say_hello();
  write(hello(), 0);
  EXPECT_EQ(why(), "it sent a second hello");
}

// A relay that has the connection, and not its keys.
TEST_P(Stranger, SealsNothing) {
  write_raw(frame(hello(), 0));
  EXPECT_EQ(why(), "it sent a hello that was changed on the way");
}

TEST_P(Stranger, SealsWithOtherKeys) {
  channel_.emplace(ConnectionKeys{Key{7}, Key{8}});
  write_hello(hello());
  EXPECT_EQ(why(), "it sent a hello that was changed on the way");
}

TEST_P(Stranger, SendsAHelloOfAnotherLength) {
  FrameHeader header = hello();
  header.bytes = 20;
  write_hello(header, 10);
  EXPECT_EQ(why(), "it sent bytes that are no hello");
}

TEST_P(Stranger, SaysHelloByteByByteAndAPutWithItsLastByte) {
  std::vector<std::byte> stream;
  channel_->seal(frame(hello(), 0), stream);
  const size_t hello_bytes = stream.size();
  for (size_t i = 0; i + 1 < hello_bytes; ++i) {
    write_raw({stream[i]});
    node_.poll();
    ASSERT_FALSE(node_.transport.connected(1));
  }
  std::vector<std::byte> data = frame(put(0, 10, 0), 10);
  if (sealed()) data = record(data);
  data.insert(data.begin(), stream.back());
  write_raw(data);
  ASSERT_TRUE(until([&] {
    node_.poll();
    return node_.notices.size() == 1;
  }));
  EXPECT_EQ(node_.region[9], std::byte{0x5a});
}

TEST_P(Stranger, SaysNoHello) {
  write_hello(put(0, 10, 0), 10);
  EXPECT_EQ(why(), "it sent a put before its hello");
}

TEST_P(Stranger, RepeatsAPut) {
  say_hello();
  write(put(0, 10, 0), 10);
  write(put(0, 10, 0), 10);
  EXPECT_EQ(why(), "it sent a put a second time");
}

TEST_P(Stranger, SendsTooMuchOfAPut) {
  say_hello();
  FrameHeader header = put(0, 10, 0);
  header.put_bytes = 15;
  write(header, 10);
  write(header, 10);
  EXPECT_EQ(why(), "it sent more bytes than its put has");
}

TEST_P(Stranger, ContradictsItself) {
  say_hello();
  FrameHeader header = put(0, 10, 0);
  header.put_bytes = 20;
  write(header, 10);
  header.notice += 1;
  write(header, 10);
  EXPECT_EQ(why(), "it sent pieces of a put that contradict each other");
}

TEST_P(Stranger, GoesBackInOrder) {
  say_hello();
  write(put(0, 10, 1), 10);
  write(put(0, 10, 0), 10);
  EXPECT_EQ(why(), "it sent its puts out of order");
}

TEST_P(Stranger, SendsAFrameThatIsTooLong) {
  say_hello();
  FrameHeader header = put(0, kFrameBytesMax + 1, 0);
  write(header, 0);
  EXPECT_EQ(why(), "it sent a frame that is too long");
}

TEST_P(Stranger, HangsUpMidHeader) {
  say_hello();
  write(std::vector<std::byte>(kFrameHeaderBytes - 1, std::byte{'R'}));
  hang_up();
  EXPECT_EQ(why(), "connection closed by the peer in the middle of a message");
}

TEST_P(Stranger, HangsUpMidPayload) {
  say_hello();
  write(put(0, 1000, 0), 999);
  hang_up();
  EXPECT_EQ(why(), "connection closed by the peer in the middle of a message");
  EXPECT_TRUE(node_.notices.empty());
}

TEST_P(Stranger, HangsUpWithPutsUnderWay) {
  say_hello();
  const auto source = pattern(8 << 20, 1);
  RemoteKey key{1, source.size()};
  ASSERT_EQ(
      node_.transport.put({.peer = 1, .source = source.data(), .bytes = source.size(), .key = key}),
      Posted::posted);
  write(put(0, 10, 0), 10);
  hang_up();
  EXPECT_FALSE(why().empty());
  EXPECT_TRUE(node_.finished.empty());
}

// What would move the window cannot come any more.
TEST_P(Stranger, SkipsBeyondTheWindow) {
  say_hello();
  write(put(0, 10, 100'000), 10);
  EXPECT_EQ(why(), "it left out a put");
}

TEST_P(Stranger, HasAnotherSettingOfSecure) {
  FrameHeader header = hello();
  header.sequence = 1 - header.sequence;
  write_hello(header);
  EXPECT_EQ(why(), std::string("it ") + (sealed() ? "does not seal" : "seals") +
                       " its data; set ROPEWALK_SECURE alike on every rank");
}

// ---- A relay of sealed data: it has the bytes, and not the keys ----

class Relay : public Stranger {
 protected:
  void is_found() {
    EXPECT_EQ(why(), "it sent data that was changed on the way");
    EXPECT_TRUE(node_.finished.empty());
  }
};

TEST_P(Relay, SealsNothing) {
  say_hello();
  write_raw(frame(put(0, 10, 0), 10));
  is_found();
  EXPECT_TRUE(node_.notices.empty());
}

TEST_P(Relay, ChangesABitOfAPayload) {
  say_hello();
  write(put(0, 10, 0), 0);
  auto payload = record(std::vector<std::byte>(10, std::byte{0x5a}));
  payload[RecordCipher::kHeaderBytes + 5] ^= std::byte{1};
  write_raw(payload);
  is_found();
  EXPECT_TRUE(node_.notices.empty());
}

TEST_P(Relay, LeavesARecordOut) {
  say_hello();
  record(frame(put(0, 10, 0), 10));
  write(put(10, 10, 1), 10);
  is_found();
  EXPECT_TRUE(node_.notices.empty());
}

TEST_P(Relay, RepeatsARecord) {
  say_hello();
  const auto once = record(frame(put(0, 10, 0), 10));
  write_raw(once);
  write_raw(once);
  is_found();
  EXPECT_EQ(node_.notices.size(), 1u);
}

TEST_P(Relay, ExchangesRecords) {
  say_hello();
  const auto first = record(frame(put(0, 10, 0), 10)), second = record(frame(put(10, 10, 1), 10));
  write_raw(second);
  write_raw(first);
  is_found();
  EXPECT_TRUE(node_.notices.empty());
}

// Of a length that no record has, or none that is not within one payload.
TEST_P(Relay, SendsARecordThatIsTooLong) {
  say_hello();
  write(std::vector<std::byte>(RecordCipher::kMixedBytesMax + 1));
  is_found();
}

TEST_P(Relay, EndsTheStreamWithinARecord) {
  say_hello();
  auto cut = record(frame(put(0, 10, 0), 10));
  cut.pop_back();
  write_raw(cut);
  hang_up();
  EXPECT_EQ(why(), "connection closed by the peer in the middle of a message");
  EXPECT_TRUE(node_.notices.empty());
}

std::string name_of(const testing::TestParamInfo<std::tuple<Kind, bool>>& tested) {
  const auto [kind, sealed] = tested.param;
  return std::string(kind == Kind::loopback ? "Loopback" : "Unix") + (sealed ? "Sealed" : "");
}

constexpr auto kKinds = {Kind::unix_sockets, Kind::loopback};
INSTANTIATE_TEST_SUITE_P(Tcp, Stranger,
                         testing::Combine(testing::ValuesIn(kKinds), testing::Bool()), name_of);
INSTANTIATE_TEST_SUITE_P(Tcp, Relay,
                         testing::Combine(testing::ValuesIn(kKinds), testing::Values(true)),
                         name_of);

}  // namespace
}  // namespace ropewalk::tcp

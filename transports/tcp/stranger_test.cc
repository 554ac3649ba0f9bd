// A peer that does not keep to the protocol, or hangs up.
#include <gtest/gtest.h>

#include <optional>

#include "transports/tcp/frame.h"
#include "transports/tcp/test_node.h"

namespace ropewalk::tcp {
namespace {

// Rank 0 is a transport; rank 1 is this test, with the bare socket.
class Stranger : public testing::TestWithParam<Kind> {
 protected:
  Stranger() : network_(2, GetParam()), node_(0, 2, network_.source(0), 1, 1000) {
    node_.link(1);
    ConnectedSocket socket = network_.source(1).take(0, 0);
    EXPECT_TRUE(socket);
    fd_ = std::move(socket.fd);
    channel_.emplace(socket.keys);
  }
  void write(const FrameHeader& header, size_t payload) {
    std::vector<std::byte> bytes(kFrameHeaderBytes + payload, std::byte{0x5a});
    encode(header, bytes.data());
    write(bytes);
  }
  void write(const std::vector<std::byte>& bytes) {
    ASSERT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  /// As a hello should be, whatever the frame is.
  void write_sealed(const FrameHeader& header, size_t payload = 0) {
    std::vector<std::byte> bytes(kFrameHeaderBytes + payload, std::byte{0x5a}), sealed;
    encode(header, bytes.data());
    channel_->seal(bytes, sealed);
    write(sealed);
  }
  void say_hello() {
    write_sealed({FrameKind::hello, kProtocolVersion, 1, 0, 0, 1, 0});
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

  LocalNetwork network_;
  Node node_;
  UniqueFd fd_;
  std::optional<SecureChannel> channel_;
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
  EXPECT_EQ(why(), "rank 1 sent a frame outside registered memory");
  EXPECT_EQ(node_.notices.size(), 1u);  // what came before counts
  EXPECT_EQ(node_.region[991], std::byte{0});
}

TEST_P(Stranger, MayNotOverflowTheOffset) {
  say_hello();
  write(put(~uint64_t{0} - 4, 10, 0), 10);
  EXPECT_EQ(why(), "rank 1 sent a frame outside registered memory");
}

TEST_P(Stranger, MayNotUseAKeyThatHasGone) {
  say_hello();
  const FrameHeader header = put(0, 10, 0);
  node_.memory.reset();
  const auto again = node_.transport.register_memory({node_.region.data(), 1000, -1, 0});
  EXPECT_NE(again->key().id, header.key);
  write(header, 10);
  EXPECT_EQ(why(), "rank 1 sent a frame outside registered memory");
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
  EXPECT_EQ(why(), "rank 1 sent a frame outside registered memory");
  EXPECT_EQ(node_.region[500], std::byte{0});
}

TEST_P(Stranger, SendsGarbage) {
  say_hello();
  write(std::vector<std::byte>(1000, std::byte{0x77}));
  EXPECT_EQ(why(), "rank 1 sent bytes that are no frame");
}

TEST_P(Stranger, SendsHellosWrong) {
  write_sealed({FrameKind::hello, kProtocolVersion + 1, 1, 0, 0, 1, 0});
  EXPECT_NE(why().find("another version"), std::string::npos);
}

TEST_P(Stranger, IsAnotherRank) {
  write_sealed({FrameKind::hello, kProtocolVersion, 2, 0, 0, 1, 0});
  EXPECT_EQ(why(), "rank 1 sent the hello of another rank or stream");
}

TEST_P(Stranger, SendsALongHello) {
  write_sealed({FrameKind::hello, kProtocolVersion, 1, 0, kHelloBytesMax + 1, 1, 0});
  EXPECT_EQ(why(), "rank 1 sent a hello that is too long");
}

TEST_P(Stranger, SaysHelloTwice) {
  say_hello();
  write({FrameKind::hello, kProtocolVersion, 1, 0, 0, 1, 0}, 0);
  EXPECT_EQ(why(), "rank 1 sent a second hello");
}

// A relay that has the connection, and not its keys.
TEST_P(Stranger, SealsNothing) {
  write({FrameKind::hello, kProtocolVersion, 1, 0, 0, 1, 0}, 0);
  EXPECT_EQ(why(), "rank 1 sent a hello that was changed on the way");
}

TEST_P(Stranger, SealsWithOtherKeys) {
  channel_.emplace(ConnectionKeys{Key{7}, Key{8}});
  write_sealed({FrameKind::hello, kProtocolVersion, 1, 0, 0, 1, 0});
  EXPECT_EQ(why(), "rank 1 sent a hello that was changed on the way");
}

TEST_P(Stranger, SendsAHelloOfAnotherLength) {
  write_sealed({FrameKind::hello, kProtocolVersion, 1, 0, 20, 1, 0}, 10);
  EXPECT_EQ(why(), "rank 1 sent bytes that are no hello");
}

TEST_P(Stranger, SaysHelloByteByByteAndAPutWithItsLastByte) {
  std::vector<std::byte> hello(kFrameHeaderBytes), stream;
  encode({FrameKind::hello, kProtocolVersion, 1, 0, 0, 1, 0}, hello.data());
  channel_->seal(hello, stream);
  const size_t hello_bytes = stream.size();
  for (size_t i = 0; i + 1 < hello_bytes; ++i) {
    write({stream[i]});
    node_.poll();
    ASSERT_FALSE(node_.transport.connected(1));
  }
  stream.resize(hello_bytes + kFrameHeaderBytes + 10, std::byte{0x5a});
  encode(put(0, 10, 0), stream.data() + hello_bytes);
  write({stream.begin() + static_cast<ptrdiff_t>(hello_bytes) - 1, stream.end()});
  ASSERT_TRUE(until([&] {
    node_.poll();
    return node_.notices.size() == 1;
  }));
  EXPECT_EQ(node_.region[9], std::byte{0x5a});
}

TEST_P(Stranger, SaysNoHello) {
  write_sealed(put(0, 10, 0), 10);
  EXPECT_EQ(why(), "rank 1 sent a put before its hello");
}

TEST_P(Stranger, RepeatsAPut) {
  say_hello();
  write(put(0, 10, 0), 10);
  write(put(0, 10, 0), 10);
  EXPECT_EQ(why(), "rank 1 sent a put a second time");
}

TEST_P(Stranger, SendsTooMuchOfAPut) {
  say_hello();
  FrameHeader header = put(0, 10, 0);
  header.put_bytes = 15;
  write(header, 10);
  write(header, 10);
  EXPECT_EQ(why(), "rank 1 sent more bytes than its put has");
}

TEST_P(Stranger, ContradictsItself) {
  say_hello();
  FrameHeader header = put(0, 10, 0);
  header.put_bytes = 20;
  write(header, 10);
  header.notice += 1;
  write(header, 10);
  EXPECT_EQ(why(), "rank 1 sent pieces of a put that contradict each other");
}

TEST_P(Stranger, GoesBackInOrder) {
  say_hello();
  write(put(0, 10, 1), 10);
  write(put(0, 10, 0), 10);
  EXPECT_EQ(why(), "rank 1 sent its puts out of order");
}

TEST_P(Stranger, SendsAFrameThatIsTooLong) {
  say_hello();
  FrameHeader header = put(0, kFrameBytesMax + 1, 0);
  write(header, 0);
  EXPECT_EQ(why(), "rank 1 sent a frame that is too long");
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
  EXPECT_EQ(why(), "rank 1 left out a put");
}

INSTANTIATE_TEST_SUITE_P(Tcp, Stranger, testing::Values(Kind::unix_sockets, Kind::loopback),
                         [](const auto& tested) {
                           return tested.param == Kind::loopback ? "Loopback" : "Unix";
                         });

}  // namespace
}  // namespace ropewalk::tcp

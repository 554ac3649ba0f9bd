#include "transports/verbs/handshake.h"

#include <gtest/gtest.h>

#include <string_view>

namespace ropewalk::verbs {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

Handshake example() {
  Handshake handshake;
  handshake.rank = 3;
  handshake.notices = 256;
  handshake.hello = bytes_of("hello");
  LaneAddress lane;
  lane.port = {LinkLayer::ethernet, 0, {}, 1, 5};
  lane.port.gid[15] = std::byte{7};
  lane.queue_pair = 0x123456;
  lane.packet_number = 0xabcdef;
  handshake.lanes = {lane, lane};
  handshake.lanes[1].port.link_layer = LinkLayer::infiniband;
  handshake.lanes[1].port.lid = 0x1234;
  handshake.lanes[1].adapter = 1;
  return handshake;
}

/// The reader's word on `bytes`; empty where it wants more.
std::string_view read(const std::vector<std::byte>& bytes, HandshakeReader& reader) {
  for (const std::byte byte : bytes)
    if (!reader.take(byte)) return reader.violation();
  return {};
}

TEST(Handshake, IsReadAsWritten) {
  const Handshake sent = example();
  const auto bytes = encode(sent);
  EXPECT_EQ(bytes.size(), kHandshakeHeadBytes + 2 * kLaneAddressBytes + 5);
  HandshakeReader reader;
  EXPECT_EQ(read({bytes.begin(), bytes.end() - 1}, reader), "");
  EXPECT_FALSE(reader.complete());
  EXPECT_TRUE(reader.take(bytes.back()));
  ASSERT_TRUE(reader.complete());
  const Handshake& got = reader.handshake();
  EXPECT_EQ(got.rank, sent.rank);
  EXPECT_EQ(got.notices, sent.notices);
  EXPECT_EQ(got.hello, sent.hello);
  ASSERT_EQ(got.lanes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got.lanes[i].queue_pair, sent.lanes[i].queue_pair);
    EXPECT_EQ(got.lanes[i].packet_number, sent.lanes[i].packet_number);
    EXPECT_EQ(got.lanes[i].adapter, sent.lanes[i].adapter);
    EXPECT_EQ(got.lanes[i].port.link_layer, sent.lanes[i].port.link_layer);
    EXPECT_EQ(got.lanes[i].port.lid, sent.lanes[i].port.lid);
    EXPECT_EQ(got.lanes[i].port.mtu, sent.lanes[i].port.mtu);
    EXPECT_EQ(got.lanes[i].port.gid, sent.lanes[i].port.gid);
  }
}

struct Garbage {
  const char* what;
  size_t at;
  int value;
  const char* violation;
};

TEST(Handshake, RefusesGarbage) {
  const Garbage cases[] = {
      {"magic", 0, 'X', "sent bytes that are no handshake"},
      {"version", 4, 99, "speaks another version of the verbs protocol"},
      {"no lanes", 6, 0, "offers no lane, or too many"},
      {"lanes", 6, 9, "offers no lane, or too many"},
      {"notices", 15, 1, "offers to take no notices, or too many"},
      {"hello", 18, 1, "sent too long a hello"},
      {"queue pair", kHandshakeHeadBytes + 3, 1, "sent an address that makes no sense"},
      {"packet number", kHandshakeHeadBytes + 7, 1, "sent an address that makes no sense"},
      {"link layer", kHandshakeHeadBytes + 10, 3, "sent an address that makes no sense"},
      {"mtu", kHandshakeHeadBytes + 11, 6, "sent an address that makes no sense"},
      {"adapter", kHandshakeHeadBytes + 12, 2, "sent an address that makes no sense"},
  };
  for (const Garbage& garbage : cases) {
    SCOPED_TRACE(garbage.what);
    auto bytes = encode(example());
    bytes[garbage.at] = static_cast<std::byte>(garbage.value);
    HandshakeReader reader;
    EXPECT_EQ(read(bytes, reader), garbage.violation);
    EXPECT_FALSE(reader.complete());
    EXPECT_FALSE(reader.take(std::byte{0}));
  }
}

}  // namespace
}  // namespace ropewalk::verbs

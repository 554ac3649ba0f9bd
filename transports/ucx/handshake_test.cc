#include "transports/ucx/handshake.h"

#include <gtest/gtest.h>

#include <string_view>

namespace ropewalk::ucx {
namespace {

Handshake example() {
  return {3, 0x12345678, std::vector<std::byte>(300, std::byte{7}),
          std::vector<std::byte>(5, std::byte{9})};
}

/// The reader's word on `bytes`; empty where it wants more, or has all.
std::string_view read(std::span<const std::byte> bytes, HandshakeReader& reader) {
  for (const std::byte byte : bytes)
    if (!reader.take(byte)) return reader.violation();
  return {};
}

TEST(Handshake, IsReadAsWritten) {
  const auto bytes = encode(example());
  EXPECT_EQ(bytes.size(), kHandshakeHeadBytes + 305);
  HandshakeReader reader;
  EXPECT_EQ(read(std::span(bytes).first(bytes.size() - 1), reader), "");
  EXPECT_FALSE(reader.complete());
  EXPECT_TRUE(reader.take(bytes.back()));
  ASSERT_TRUE(reader.complete());
  const Handshake& got = reader.handshake();
  EXPECT_EQ(got.rank, 3u);
  EXPECT_EQ(got.link, 0x12345678u);
  EXPECT_EQ(got.address, example().address);
  EXPECT_EQ(got.hello, example().hello);
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
      {"version", 4, 99, "speaks another version of the UCX protocol"},
      {"hello", 13, 2, "sent too long a hello"},
      {"address", 18, 2, "sent no address, or too long a one"},
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
}  // namespace ropewalk::ucx

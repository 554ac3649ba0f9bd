// Sealed records without a socket. The expected bytes are those of another implementation.
#include "transports/tcp/records.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/little_endian.h"

namespace ropewalk::tcp {
namespace {

using Bytes = std::vector<std::byte>;

std::string hex_of(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte byte : bytes) hex += fmt::format("{:02x}", byte);
  return hex;
}

Key counting_key() {
  Key key;
  std::iota(key.begin(), key.end(), static_cast<unsigned char>(0));
  return key;
}

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes random_bytes(size_t count) {
  std::mt19937 random(1);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// NIST's test case 14 of "The Galois/Counter Mode of Operation".
TEST(AesGcm, SealsAsTheStandardSays) {
  const Bytes zeros(16);
  Bytes sealed(zeros.size() + AesGcm::kTagBytes);
  AesGcm aes(Key{});
  aes.seal(0, {}, zeros, sealed.data());
  EXPECT_EQ(hex_of(sealed), "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
  Bytes opened(zeros.size(), std::byte{1});
  EXPECT_TRUE(aes.open(0, {}, sealed, opened.data()));
  EXPECT_EQ(opened, zeros);
}

struct Pair {
  RecordCipher sealing{counting_key()}, opening{counting_key()};

  Bytes seal(std::span<const std::byte> plain) {
    Bytes record(plain.size() + RecordCipher::kOverheadBytes);
    sealing.seal(plain, record.data());
    return record;
  }
};

TEST(RecordCipher, SealsAsDocumented) {
  Pair pair;
  EXPECT_EQ(hex_of(pair.seal(bytes_of("abc"))), "13000000b6a428f1662143de1b163730acb94aa5272121");
  EXPECT_EQ(hex_of(pair.seal(bytes_of("abc"))), "13000000039592f867d89a4d66e35676fb57ce22ccf355");
}

TEST(RecordCipher, ChangesItsKeyInTime) {
  Pair pair;
  const Bytes plain = bytes_of("abc");
  Bytes opened(plain.size());
  for (uint64_t i = 0; i < RecordCipher::kRecordsPerKey; ++i)
    ASSERT_TRUE(pair.opening.open(pair.seal(plain), opened.data()));
  const Bytes record = pair.seal(plain);
  EXPECT_EQ(hex_of(record), "1300000055b3dd86d063767d872e88d4a65c5dcbec22d0");
  EXPECT_TRUE(pair.opening.open(record, opened.data()));
  EXPECT_EQ(opened, plain);
}

TEST(RecordCipher, OpensNothingThatWasChanged) {
  const Bytes plain = bytes_of("abcdefgh");
  const size_t length = plain.size() + RecordCipher::kOverheadBytes;
  for (size_t bit = 0; bit < length * 8; ++bit) {
    Pair pair;
    Bytes record = pair.seal(plain), opened(plain.size());
    record[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(pair.opening.open(record, opened.data())) << bit;
  }
}

TEST(RecordCipher, SealsWhereTheBytesLie) {
  Pair there, here;
  const Bytes plain = random_bytes(RecordCipher::kPlainBytesMax);
  Bytes record(plain.size() + RecordCipher::kOverheadBytes);
  std::byte* const within = record.data() + RecordCipher::kHeaderBytes;
  std::ranges::copy(plain, within);
  here.sealing.seal({within, plain.size()}, record.data());
  EXPECT_EQ(record, there.seal(plain));
}

/// A stream from a sealer to an opener, and what the opener was asked to give.
class Sealed : public testing::Test {
 protected:
  /// Sends what is sealed in parts of `part` bytes, each as far as there is a place for it, and
  /// opens what is whole.
  void pass(size_t part) {
    while (!sealer_.unsent().empty()) {
      const iovec place = opener_.place();
      const auto sent =
          sealer_.unsent().first(std::min({part, place.iov_len, sealer_.unsent().size()}));
      std::ranges::copy(sent, static_cast<std::byte*>(place.iov_base));
      sealer_.sent(sent.size());
      opener_.received(sent.size());
      open();
    }
  }
  void open() {
    while (const auto bytes = opener_.next()) {
      ASSERT_GT(*bytes, 0u);
      lengths_.push_back(*bytes);
      opened_.resize(opened_.size() + *bytes);
      ASSERT_TRUE(opener_.open(opened_.data() + opened_.size() - *bytes));
    }
  }

  RecordSealer sealer_{counting_key()};
  RecordOpener opener_{counting_key()};
  Bytes opened_;
  std::vector<size_t> lengths_;
};

TEST_F(Sealed, PiecesOfAllLengthsComeAsTheyWere) {
  const Bytes plain = random_bytes(3'000'000);
  const std::vector<size_t> lengths = {40, 1'000'000, 40, 4096, 40, 4097, 40, 65536, 1, 1, 65537};
  std::vector<iovec> pieces;
  size_t at = 0;
  for (size_t i = 0; at < plain.size(); ++i) {
    const size_t length = std::min(lengths[i % lengths.size()], plain.size() - at);
    pieces.push_back({const_cast<std::byte*>(plain.data()) + at, length});
    at += length;
  }
  std::span<iovec> left = pieces;
  size_t sealed = 0;
  for (size_t part = 1; !left.empty(); part = part * 3 + 1) {
    sealed += sealer_.seal(left);
    pass(part);
    ASSERT_EQ(opened_.size(), sealed);
  }
  EXPECT_EQ(opened_, plain);
  EXPECT_TRUE(opener_.empty());
  EXPECT_LE(std::ranges::max(lengths_), RecordCipher::kPlainBytesMax);
}

// What is not of one piece lies in records that a reader's buffer takes.
TEST_F(Sealed, NeighboursShareARecord) {
  const Bytes plain = random_bytes(25 * 4000);
  std::vector<iovec> pieces;
  for (size_t i = 0; i < 25; ++i)
    pieces.push_back({const_cast<std::byte*>(plain.data()) + i * 4000, 4000});
  std::span<iovec> left = pieces;
  EXPECT_EQ(sealer_.seal(left), plain.size());
  EXPECT_TRUE(left.empty());
  pass(plain.size());
  EXPECT_EQ(opened_, plain);
  EXPECT_EQ(lengths_, (std::vector<size_t>{40960, 40960, 18080}));
}

TEST(RecordOpener, KnowsALengthThatNoRecordHas) {
  for (const uint32_t length : {0u, 16u, 65553u, ~0u}) {
    RecordOpener opener(counting_key());
    little_endian::store(static_cast<std::byte*>(opener.place().iov_base), length);
    opener.received(sizeof length);
    EXPECT_EQ(opener.next(), size_t{0}) << length;
  }
}

}  // namespace
}  // namespace ropewalk::tcp

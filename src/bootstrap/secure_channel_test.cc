#include "bootstrap/secure_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "bootstrap/auth.h"

namespace ropewalk {
namespace {

using Bytes = std::vector<std::byte>;

class SealedRecords : public testing::Test {
 protected:
  static void SetUpTestSuite() { bootstrap::start_cryptography(); }
  Bytes sealed(const Bytes& plain) {
    Bytes records;
    here_.seal(plain, records);
    return records;
  }
  /// What the other end reads; nothing where it reads no more.
  std::optional<Bytes> opened(Bytes& received) {
    Bytes plain;
    if (!there_.open(received, plain)) return {};
    return plain;
  }

  SecureChannel here_{{Key{1}, Key{2}}}, there_{{Key{2}, Key{1}}};
  const Bytes words_ = Bytes(100, std::byte{'w'});
};

TEST_F(SealedRecords, OpenAtTheOtherEnd) {
  Bytes received = sealed(words_);
  EXPECT_EQ(received.size(), words_.size() + SecureChannel::kOverheadBytes);
  EXPECT_EQ(opened(received), words_);
  EXPECT_TRUE(received.empty());
  EXPECT_TRUE(sealed({}).empty());
}

TEST_F(SealedRecords, MayBeLongAndComeInParts) {
  Bytes words(3 * SecureChannel::kPlainBytesMax + 1);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::byte>(i % 251);
  const Bytes records = sealed(words);
  Bytes received, all;
  for (size_t at = 0; at < records.size(); at += 777) {
    const size_t end = std::min(records.size(), at + 777);
    received.insert(received.end(), records.begin() + static_cast<ptrdiff_t>(at),
                    records.begin() + static_cast<ptrdiff_t>(end));
    ASSERT_TRUE(there_.open(received, all));
  }
  EXPECT_EQ(all, words);
}

TEST_F(SealedRecords, AreNotTheirBytes) {
  const Bytes record = sealed(words_);
  EXPECT_EQ(std::search_n(record.begin(), record.end(), 8, std::byte{'w'}), record.end());
  EXPECT_NE(sealed(words_), sealed(words_));
}

TEST_F(SealedRecords, ThatWereChangedAreRefused) {
  const Bytes record = sealed(words_);
  for (size_t i = 0; i < record.size(); ++i) {
    SecureChannel reader({Key{2}, Key{1}});
    Bytes received = record, plain;
    received[i] ^= std::byte{1};
    const bool is_whole = SecureChannel::record_bytes(received) <= received.size();
    EXPECT_EQ(reader.open(received, plain), !is_whole && i < 2)
        << i;  // a longer one may still come
    EXPECT_TRUE(plain.empty()) << i;
  }
}

TEST_F(SealedRecords, ThatAreRepeatedLeftOutOrReflectedAreRefused) {
  const Bytes first = sealed(words_);
  Bytes twice = first;
  twice.insert(twice.end(), first.begin(), first.end());
  EXPECT_FALSE(opened(twice));

  SecureChannel reader({Key{2}, Key{1}});
  Bytes second = sealed(words_), plain, again = first;
  EXPECT_FALSE(reader.open(second, plain));
  EXPECT_FALSE(reader.open(again, plain)) << "nothing is read any more";

  SecureChannel writer({Key{1}, Key{2}});
  Bytes own;
  writer.seal(words_, own);
  EXPECT_FALSE(writer.open(own, plain));
}

TEST_F(SealedRecords, OfNoPossibleLengthAreRefusedAtOnce) {
  for (const uint32_t length : {0u, 16u, uint32_t{SecureChannel::kPlainBytesMax} + 17, ~0u}) {
    Bytes received(4);
    std::memcpy(received.data(), &length, 4);
    EXPECT_FALSE(opened(received)) << length;
  }
}

}  // namespace
}  // namespace ropewalk

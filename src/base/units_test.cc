#include "base/units.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

TEST(Units, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1), "1 byte");
  EXPECT_EQ(bytes_text(1023), "1023 bytes");
  EXPECT_EQ(bytes_text(1024), "1 KiB");
  EXPECT_EQ(bytes_text(3 << 19), "1.5 MiB");
  EXPECT_EQ(bytes_text((uint64_t{1} << 40) - 1), "1024 GiB");
  EXPECT_EQ(bytes_text(uint64_t{1} << 40), "1 TiB");
  EXPECT_EQ(bytes_text(UINT64_MAX), "16 EiB");
}

// `ropewalk explain` said "1.29e+04 ms".
TEST(Units, TimesHaveNoExponent) {
  EXPECT_EQ(time_text(12.9e6), "12.9 s");
  EXPECT_EQ(time_text(12.9e9), "12900 s");
  EXPECT_EQ(time_text(999.7), "1 ms");
  EXPECT_EQ(time_text(999'700), "1 s");
}

TEST(Units, TimesHaveThreeDigits) {
  EXPECT_EQ(time_text(0), "0 us");
  EXPECT_EQ(time_text(0.253), "0.25 us");
  EXPECT_EQ(time_text(1.2345), "1.23 us");
  EXPECT_EQ(time_text(9.999), "10 us");
  EXPECT_EQ(time_text(12.345), "12.3 us");
  EXPECT_EQ(time_text(123.45), "123 us");
  EXPECT_EQ(time_text(1234.5), "1.23 ms");
  EXPECT_EQ(time_text(200e3), "200 ms");
}

}  // namespace
}  // namespace ropewalk

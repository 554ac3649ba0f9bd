#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"
#include "reduce/reduce.h"

namespace ropewalk {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The value of a half by its definition: `mantissa_bits` of mantissa, exponent bias `bias`.
double definition(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_mask = (1 << (15 - mantissa_bits)) - 1;
  const int exponent = (bits >> mantissa_bits) & exponent_mask;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) ? -1 : 1;
  if (exponent == exponent_mask) return mantissa == 0 ? sign * double{kInfinity} : std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// The nearest half by its definition, ties to even: in units of the last place of its binade.
uint16_t nearest(float value, int mantissa_bits, int bias) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(double{value});
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << (15 - mantissa_bits)) - 1) << mantissa_bits);
  if (std::isinf(value)) return sign | infinity;
  int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  // nearbyint rounds ties to even in the default mode. 2^(mantissa_bits + 1) units carry by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const double bits = units + std::ldexp(exponent - 1 + bias, mantissa_bits);
  return sign | static_cast<uint16_t>(std::min<double>(bits, infinity));
}

TEST(Half, EveryFloat16ExpandsToItsValueAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float16 half{static_cast<uint16_t>(bits)};
    const double want = definition(half.bits, 10, 15);
    const float got = to_float(half);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_EQ(to_float16(got).bits, bits | 0x0200) << "quiet, same sign and payload";
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(static_cast<float>(want)));
      ASSERT_EQ(to_float16(got).bits, bits);
    }
  }
}

TEST(Half, EveryBfloat16ExpandsToItsValueAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const bfloat16 half{static_cast<uint16_t>(bits)};
    const double want = definition(half.bits, 7, 127);
    const float got = to_float(half);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_EQ(to_bfloat16(got).bits, bits | 0x0040);
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(static_cast<float>(want)));
      ASSERT_EQ(to_bfloat16(got).bits, bits);
    }
  }
}

// Around every half: the half way points to its neighbours, and one float to either side of them.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double low = definition(static_cast<uint16_t>(bits), 10, 15);
    const double high =
        bits == 0x7BFF ? 65536.0 : definition(static_cast<uint16_t>(bits + 1), 10, 15);
    const float middle = static_cast<float>((low + high) / 2);
    for (float value : {middle, std::nextafter(middle, kInfinity), std::nextafter(middle, 0.0f)}) {
      ASSERT_EQ(to_float16(value).bits, nearest(value, 10, 15)) << value;
      ASSERT_EQ(to_float16(-value).bits, nearest(-value, 10, 15)) << value;
    }
  }
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const uint32_t middle = (bits << 16) | 0x8000;
    for (uint32_t pattern : {middle, middle + 1, middle - 1}) {
      const float value = std::bit_cast<float>(pattern);
      ASSERT_EQ(to_bfloat16(value).bits, nearest(value, 7, 127)) << value;
      ASSERT_EQ(to_bfloat16(-value).bits, nearest(-value, 7, 127)) << value;
    }
  }
}

TEST(Half, RoundsAllBinadesOfFloat) {
  for (uint64_t bits = 0; bits < 0x7F800000; bits += 4099) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_EQ(to_float16(value).bits, nearest(value, 10, 15)) << value;
    ASSERT_EQ(to_bfloat16(value).bits, nearest(value, 7, 127)) << value;
  }
}

TEST(Half, Edges) {
  EXPECT_EQ(to_float16(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(to_float16(std::nextafter(65520.0f, 0.0f)).bits, 0x7BFF);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(to_float16(-1e30f).bits, 0xFC00);
  EXPECT_EQ(to_float16(kInfinity).bits, 0x7C00);
  EXPECT_EQ(to_float16(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(to_float16(0x1p-25f).bits, 0x0000) << "half of the least subnormal: to even";
  EXPECT_EQ(to_float16(std::nextafter(0x1p-25f, 1.0f)).bits, 0x0001);
  EXPECT_EQ(to_float16(-0.0f).bits, 0x8000);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(-0.0f).bits, 0x8000);
  // A NaN whose payload lies in the bits that are cut off must not become infinity.
  EXPECT_EQ(to_float16(std::bit_cast<float>(0x7F800001u)).bits, 0x7E00);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7F800001u)).bits, 0x7FC0);
}

}  // namespace
}  // namespace ropewalk

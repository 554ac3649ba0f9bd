// Scalar conversions of the half types (types.h). The vector forms in elements-inl.h do the same.
#include <bit>

#include "reduce/reduce.h"

namespace ropewalk {
namespace {

constexpr uint32_t kFloatExponentBias = 127, kHalfExponentBias = 15;
constexpr uint32_t kFloatInfinity = 255u << 23;
constexpr int kMantissaShift = 23 - 10;
// The least float32 magnitudes that are a normal float16 (2^-14), and beyond float16 (2^16).
constexpr uint32_t kLeastNormalHalf = (kFloatExponentBias - 14) << 23;
constexpr uint32_t kBeyondHalf = (kFloatExponentBias + 16) << 23;

}  // namespace

float to_float(float16 value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16;
  const uint32_t magnitude = (value.bits & 0x7FFFu) << kMantissaShift;
  const uint32_t exponent = magnitude & (0x1Fu << 23);
  uint32_t bits = magnitude + ((kFloatExponentBias - kHalfExponentBias) << 23);
  if (exponent == 0x1Fu << 23) {
    bits += (128u - 16) << 23;  // infinity and NaN: the exponent becomes 255
  } else if (exponent == 0) {
    // Subnormal: 2^-14 (1 + m) - 2^-14 is exact, and no operand is a float32 subnormal.
    const float sum = std::bit_cast<float>(bits + (1u << 23));
    bits = std::bit_cast<uint32_t>(sum - std::bit_cast<float>(kLeastNormalHalf));
  }
  return std::bit_cast<float>(bits | sign);
}

float to_float(bfloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}

float16 float16::from(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t half;
  if (magnitude > kFloatInfinity) {
    half = 0x7E00u | ((magnitude >> kMantissaShift) & 0x3FFu);  // quiet, the payload's high bits
  } else if (magnitude >= kBeyondHalf) {
    half = 0x7C00u;
  } else if (magnitude < kLeastNormalHalf) {
    // In 0.5 the last bit is worth 2^-24, as in a subnormal float16: the addition rounds for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  } else {
    const uint32_t odd = (magnitude >> kMantissaShift) & 1;
    const uint32_t rebias = (kFloatExponentBias - kHalfExponentBias) << 23;
    half = (magnitude - rebias + 0xFFFu + odd) >> kMantissaShift;  // may carry into infinity
  }
  return float16{static_cast<uint16_t>(half | sign)};
}

bfloat16 bfloat16::from(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > kFloatInfinity)
    return bfloat16{static_cast<uint16_t>((bits >> 16) | 0x0040u)};  // quiet
  const uint32_t odd = (bits >> 16) & 1;
  return bfloat16{static_cast<uint16_t>((bits + 0x7FFFu + odd) >> 16)};
}

}  // namespace ropewalk

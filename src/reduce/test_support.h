// For the tests: what reduce() must give, one element at a time in plain arithmetic, and values to
// try it on.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <random>
#include <type_traits>
#include <vector>

#include "hwy/highway.h"
#include "reduce/kernels.h"
#include "reduce/reduce.h"

namespace ropewalk {

/// `value` rounded to T, with the NaN that reduce() makes.
template <class T>
T stored(Wide<T> value) {
  if constexpr (std::is_floating_point_v<Wide<T>>)
    if (std::isnan(value)) value = std::numeric_limits<Wide<T>>::quiet_NaN();
  return narrow<T>(value);
}

template <class C>
C lesser(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<C>::quiet_NaN();
    if (a == b) return std::signbit(a) ? a : b;
  }
  return a < b ? a : b;
}

template <class C>
C greater(C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<C>::quiet_NaN();
    if (a == b) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

/// a + b and a * b: integers modulo 2^n; float32 by way of double, which rounds once.
template <class C, class F>
C arithmetic(C a, C b, F f) {
  if constexpr (std::is_integral_v<C>)
    return static_cast<C>(f(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  else
    return static_cast<C>(f(double{a}, double{b}));
}

template <class C>
C pairwise_reference(ReduceKind kind, C a, C b) {
  switch (kind) {
    case ReduceKind::prod:
      return arithmetic(a, b, [](auto x, auto y) { return x * y; });
    case ReduceKind::min:
      return lesser(a, b);
    case ReduceKind::max:
      return greater(a, b);
    default:
      return arithmetic(a, b, [](auto x, auto y) { return x + y; });
  }
}

/// The reduction of one element of every source.
template <class T>
T reference(ReduceKind kind, const std::vector<std::vector<T>>& sources, size_t i) {
  if (sources.size() == 1) return sources[0][i];
  Wide<T> value = widen(sources[0][i]);
  for (size_t s = 1; s < sources.size(); ++s)
    value = pairwise_reference(kind, value, widen(sources[s][i]));
  return stored<T>(value);
}

/// Random bits (so: NaN, infinity, subnormals), small numbers, and the specials of the type.
template <class T>
T random_value(std::mt19937_64& random) {
  const uint64_t choice = random() % 8;
  if (choice < 3) {
    const uint64_t bits = random();
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  using C = Wide<T>;
  if constexpr (std::is_floating_point_v<C>) {
    constexpr C kInfinity = std::numeric_limits<C>::infinity();
    const C specials[] = {C{0},     -C{0},     kInfinity,   -kInfinity,  -kInfinity + kInfinity,
                          C{65504}, C{-65504}, C{0x1p-24f}, C{0x1p-14f}, C{1.0f + 0x1p-11f}};
    if (choice == 3) return stored<T>(specials[random() % std::size(specials)]);
    return stored<T>(static_cast<C>(static_cast<double>(random() % 20001) / 64 - 150));
  } else {
    return static_cast<T>(random() % 17);
  }
}

template <class T>
std::vector<T> random_values(std::mt19937_64& random, size_t count) {
  std::vector<T> values(count);
  for (T& value : values) value = random_value<T>(random);
  return values;
}

/// The bits of a value, for comparisons that tell -0 from 0 and one NaN from another.
struct Hex {
  uint64_t bits = 0;
  bool operator==(const Hex&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Hex& hex) {
    const auto flags = out.flags();
    out << "0x" << std::hex << hex.bits;
    out.flags(flags);
    return out;
  }
};
template <class T>
Hex hex(T value) {
  Hex hex;
  std::memcpy(&hex.bits, &value, sizeof value);
  return hex;
}

/// Every instruction set that was compiled and that this machine can run, plain C++ included.
inline std::vector<int64_t> all_targets() {
  std::vector<int64_t> targets = {HWY_STATIC_TARGET};
  for (const int64_t target : hwy::SupportedAndGeneratedTargets())
    if (target != HWY_STATIC_TARGET && (usable_targets() & target) != 0) targets.push_back(target);
  return targets;
}

/// Makes reduce() run on one target while it lives.
class TargetScope {
 public:
  explicit TargetScope(int64_t target) : trace_(__FILE__, __LINE__, hwy::TargetName(target)) {
    limit_targets(target);
    EXPECT_STREQ(reduce_target_name(), hwy::TargetName(target));
  }
  ~TargetScope() { limit_targets(0); }

 private:
  testing::ScopedTrace trace_;
};

}  // namespace ropewalk

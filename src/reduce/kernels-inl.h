// The pairwise operations and the loops that run them over memory. Compiled once per instruction
// set.
#if defined(ROPEWALK_REDUCE_KERNELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_REDUCE_KERNELS_INL_H
#undef ROPEWALK_REDUCE_KERNELS_INL_H
#else
#define ROPEWALK_REDUCE_KERNELS_INL_H
#endif

#include <cstring>

#include "hwy/highway.h"
#include "reduce/elements-inl.h"
#include "reduce/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Add(a, b);
  }
};

struct Prod {
  template <class D, class V>
  static HWY_INLINE V apply(D d, V a, V b) {
    if constexpr (sizeof(hn::TFromD<D>) == 1) {
      return multiply_bytes(d, a, b);
    } else {
      return hn::Mul(a, b);
    }
  }

  // No instruction set multiplies bytes: two 16-bit products, of the even and of the odd bytes.
  template <class D, class V>
  static HWY_INLINE V multiply_bytes([[maybe_unused]] D d, V a, V b) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Mul(a, b);
#else
    const hn::RepartitionToWide<D> wide;
    const auto wide_a = hn::BitCast(wide, a), wide_b = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(wide_a, wide_b), hn::Set(wide, 0x00FF));
    const auto odd = hn::Mul(hn::ShiftRight<8>(wide_a), hn::ShiftRight<8>(wide_b));
    return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
#endif
  }
};

// Floating min and max: the processors' own disagree on NaN and on -0. Where neither operand is
// below the other they are equal, so that OR and AND only join the signs of two zeros, or one is
// NaN, and then an OR of the bits is a NaN too.
struct Min {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V otherwise = hn::Or(a, b);
      return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, otherwise));
    } else {
      return hn::Min(a, b);
    }
  }
};

struct Max {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const V otherwise = hn::Or(hn::And(a, b), hn::Abs(hn::Or(a, b)));
      return hn::IfThenElse(hn::Lt(b, a), a, hn::IfThenElse(hn::Lt(a, b), b, otherwise));
    } else {
      return hn::Max(a, b);
    }
  }
};

/// One vector at byte `offset` of every span: all sources are read before the first
/// store, so that destinations may be sources.
template <class E, class Op>
HWY_INLINE void reduce_one(const ReduceArguments& a, size_t sources, size_t destinations,
                           size_t offset) {
  auto v = E::load(a.sources[0] + offset);
  for (size_t s = 1; s < sources; ++s) v = E::template apply<Op>(v, E::load(a.sources[s] + offset));
  v = E::finish(v);
  for (size_t k = 0; k < destinations; ++k) E::store(v, a.destinations[k] + offset);
}

/// The same for four vectors at once, for independent chains. (Named variables: vectors of unknown
/// length cannot form arrays.)
template <class E, class Op>
HWY_INLINE void reduce_four(const ReduceArguments& a, size_t sources, size_t destinations,
                            size_t offset, size_t step) {
  const std::byte* from = a.sources[0] + offset;
  auto v0 = E::load(from);
  auto v1 = E::load(from + step);
  auto v2 = E::load(from + 2 * step);
  auto v3 = E::load(from + 3 * step);
  for (size_t s = 1; s < sources; ++s) {
    from = a.sources[s] + offset;
    v0 = E::template apply<Op>(v0, E::load(from));
    v1 = E::template apply<Op>(v1, E::load(from + step));
    v2 = E::template apply<Op>(v2, E::load(from + 2 * step));
    v3 = E::template apply<Op>(v3, E::load(from + 3 * step));
  }
  v0 = E::finish(v0);
  v1 = E::finish(v1);
  v2 = E::finish(v2);
  v3 = E::finish(v3);
  for (size_t k = 0; k < destinations; ++k) {
    std::byte* to = a.destinations[k] + offset;
    E::store(v0, to);
    E::store(v1, to + step);
    E::store(v2, to + 2 * step);
    E::store(v3, to + 3 * step);
  }
}

/// The last elements, fewer than a vector of `step` bytes: in vectors half as wide where there are
/// such, since a short message is nothing but this, then through a zero-padded vector. So they meet
/// the same instructions as all others.
template <class E, class Op>
HWY_INLINE void reduce_less(const ReduceArguments& a, size_t offset, size_t bytes, size_t step) {
  if constexpr (Half<E>::kExists) {
    using Narrow = typename Half<E>::Element;
    const size_t width = step / 2;
    if (bytes >= width) {
      reduce_one<Narrow, Op>(a, a.source_count, a.destination_count, offset);
      offset += width;
      bytes -= width;
    }
    if (bytes > 0) reduce_less<Narrow, Op>(a, offset, bytes, width);
  } else {
    alignas(64) std::byte buffer[HWY_MAX_BYTES];
    std::memset(buffer, 0, step);
    std::memcpy(buffer, a.sources[0] + offset, bytes);
    auto v = E::load(buffer);
    for (size_t s = 1; s < a.source_count; ++s) {
      std::memcpy(buffer, a.sources[s] + offset, bytes);
      v = E::template apply<Op>(v, E::load(buffer));
    }
    E::store(E::finish(v), buffer);
    for (size_t k = 0; k < a.destination_count; ++k)
      std::memcpy(a.destinations[k] + offset, buffer, bytes);
  }
}

/// Not inlined, as reduce_span: compilers take long over large functions.
template <class E, class Op>
HWY_NOINLINE void reduce_rest(const ReduceArguments& a, size_t offset, size_t bytes, size_t step) {
  reduce_less<E, Op>(a, offset, bytes, step);
}

/// Long spans are walked in two places at once: the processor's prefetchers follow each stream on
/// its own, so that more of another core's cache lines are under way (a tenth faster where
/// measured).
constexpr size_t kTwoStreamsBytesMin = 128 << 10;

/// `kSources` and `kDestinations`: the numbers where known when compiling, else 0.
template <class E, class Op, size_t kSources, size_t kDestinations>
HWY_NOINLINE void reduce_span(const ReduceArguments& a) {
  const size_t sources = kSources != 0 ? kSources : a.source_count;
  const size_t destinations = kDestinations != 0 ? kDestinations : a.destination_count;
  const size_t step = E::step_bytes();
  const size_t bytes = a.count * E::kBytes;
  size_t offset = 0;
  if (bytes >= kTwoStreamsBytesMin) {
    const size_t half = bytes / 2 / (4 * step) * (4 * step);
    for (; offset < half; offset += 4 * step) {
      reduce_four<E, Op>(a, sources, destinations, offset, step);
      reduce_four<E, Op>(a, sources, destinations, half + offset, step);
    }
    offset *= 2;
  }
  for (; offset + 4 * step <= bytes; offset += 4 * step)
    reduce_four<E, Op>(a, sources, destinations, offset, step);
  for (; offset + step <= bytes; offset += step)
    reduce_one<E, Op>(a, sources, destinations, offset);
  if (offset < bytes) reduce_rest<E, Op>(a, offset, bytes - offset, step);
}

/// Two sources into one destination is every receive-and-reduce step; two into two is what an owner
/// does in an all_reduce of two ranks over mapped memory.
template <class E, class Op>
void reduce_elements(const ReduceArguments& a) {
  if (a.source_count == 2 && a.destination_count == 1) {
    reduce_span<E, Op, 2, 1>(a);
  } else if (a.source_count == 2 && a.destination_count == 2) {
    reduce_span<E, Op, 2, 2>(a);
  } else {
    reduce_span<E, Op, 0, 0>(a);
  }
}

struct Divide {
  template <class D, class V>
  static HWY_INLINE V apply(D, V a, V b) {
    return hn::Div(a, b);
  }
};

/// destination = source (Op) operand, where the operand is first rounded to the computing type.
template <class E, class Op>
void map_elements(std::byte* destination, const std::byte* source, size_t count, double operand) {
  const auto constant = E::fill(operand);
  const size_t step = E::step_bytes();
  const size_t bytes = count * E::kBytes;
  const auto map = [&](const std::byte* from, std::byte* to) HWY_ATTR {
    E::store(E::finish(E::template apply<Op>(E::load(from), constant)), to);
  };
  size_t offset = 0;
  for (; offset + step <= bytes; offset += step) map(source + offset, destination + offset);
  if (offset == bytes) return;
  alignas(64) std::byte buffer[HWY_MAX_BYTES];
  std::memset(buffer, 0, step);
  std::memcpy(buffer, source + offset, bytes - offset);
  map(buffer, buffer);
  std::memcpy(destination + offset, buffer, bytes - offset);
}

template <class T>
Kernels kernels_of_type() {
  using E = typename ElementOf<T>::Type;
  // Sums and products of integers wrap, so that signed types share the unsigned kernels.
  using Unsigned = hwy::UnsignedFromSize<sizeof(T)>;
  using Wraps = typename ElementOf<std::conditional_t<std::is_integral_v<T>, Unsigned, T>>::Type;
  constexpr ReduceKernel sum = &reduce_elements<Wraps, Sum>;
  Kernels kernels{.target = hwy::TargetName(HWY_TARGET),
                  .reduce = {sum, &reduce_elements<Wraps, Prod>, &reduce_elements<E, Min>,
                             &reduce_elements<E, Max>, /*avg*/ sum, /*scaled_sum*/ sum}};
  if constexpr (!std::is_integral_v<T>) {
    kernels.multiply = &map_elements<E, Prod>;
    kernels.divide = &map_elements<E, Divide>;
  }
  return kernels;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ropewalk
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target

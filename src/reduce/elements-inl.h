// How each element type is loaded, computed and stored. Compiled once per instruction set.
//
// An element policy has: D, the Highway tag that is computed in; kBytes, the stored size of one
// element; load and store of one vector of Lanes(D) elements at any address; finish, which makes
// the bits of a result canonical before it is stored.
#if defined(ROPEWALK_REDUCE_ELEMENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ROPEWALK_REDUCE_ELEMENTS_INL_H
#undef ROPEWALK_REDUCE_ELEMENTS_INL_H
#else
#define ROPEWALK_REDUCE_ELEMENTS_INL_H
#endif

#include <limits>

#include "hwy/highway.h"
#include "ropewalk/types.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Which operand's NaN an addition hands on, and the sign of a NaN it makes, differ between
// processors and between compilers, so NaN results are replaced by one.
template <class D, class V>
HWY_INLINE V canonical_nan(D d, V v) {
  using T = hn::TFromD<D>;
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), v);
}

/// What the policies have in common that compute in one vector of `T`.
template <class T, size_t kStoredBytes = sizeof(T), class Tag = hn::ScalableTag<T>>
struct VectorOf {
  using D = Tag;
  using V = hn::Vec<D>;
  static constexpr size_t kBytes = kStoredBytes;

  static HWY_INLINE size_t step_bytes() { return hn::Lanes(D()) * kBytes; }
  static HWY_INLINE V fill(double value) { return hn::Set(D(), static_cast<T>(value)); }
  template <class Op>
  static HWY_INLINE V apply(V a, V b) {
    return Op::apply(D(), a, b);
  }
  static HWY_INLINE V finish(V v) {
    if constexpr (hwy::IsFloat<T>()) {
      return canonical_nan(D(), v);
    } else {
      return v;
    }
  }
};

/// Integers, float32 and float64: computed as they are stored.
template <class T, class Tag = hn::ScalableTag<T>>
struct PlainElement : VectorOf<T, sizeof(T), Tag> {
  using D = Tag;
  using V = hn::Vec<D>;

  static HWY_INLINE V load(const std::byte* from) {
    return hn::LoadU(D(), reinterpret_cast<const T*>(from));
  }
  static HWY_INLINE void store(V v, std::byte* to) { hn::StoreU(v, D(), reinterpret_cast<T*>(to)); }
};

/// The same element policy in vectors half as wide: `Element`, and whether there is one. Of 4 bytes
/// at least, since some operations widen their lanes.
template <class E>
struct Half {
  static constexpr bool kExists = false;
};

#if !HWY_HAVE_SCALABLE && HWY_TARGET != HWY_SCALAR

template <class T, class Tag>
struct Half<PlainElement<T, Tag>> {
  static constexpr size_t kBytes = hn::MaxLanes(Tag()) * sizeof(T) / 2;
  static constexpr bool kExists = kBytes >= 4 && kBytes >= sizeof(T);
  using Element = PlainElement<T, hn::Half<Tag>>;
};

#endif

/// A half in each 32-bit lane. `Format` has V expand(bits), and bits round(V) for a V without other
/// NaNs than the canonical one.
template <class Format>
struct HalfElement : VectorOf<float, 2> {
  using Bits = hn::RebindToUnsigned<D>;
  using Stored = hn::Rebind<uint16_t, D>;

  static HWY_INLINE V load(const std::byte* from) {
    const auto stored = hn::LoadU(Stored(), reinterpret_cast<const uint16_t*>(from));
    return Format::expand(hn::PromoteTo(Bits(), stored));
  }
  static HWY_INLINE void store(V v, std::byte* to) {
    // Highway narrows signed lanes to unsigned with saturation; 0..65535 fits as it is.
    const auto bits = hn::BitCast(hn::RebindToSigned<D>(), Format::round(v));
    hn::StoreU(hn::DemoteTo(Stored(), bits), Stored(), reinterpret_cast<uint16_t*>(to));
  }
};

// The bits of v rounded to the upper 16, to nearest even; the lower 16 are rubbish.
template <class V>
HWY_INLINE auto round_to_upper_half(V v) {
  const hn::RebindToUnsigned<hn::DFromV<V>> u;
  const auto bits = hn::BitCast(u, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7FFFu)));
}

#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_SCALAR

// Vectors of unknown length cannot be members of a pair, and a vector of one lane has no halves.
struct Bfloat16Format {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using VBits = hn::Vec<hn::RebindToUnsigned<D>>;

  static HWY_INLINE V expand(VBits bits) { return hn::BitCast(D(), hn::ShiftLeft<16>(bits)); }
  static HWY_INLINE VBits round(V v) { return hn::ShiftRight<16>(round_to_upper_half(v)); }
};

using Bfloat16Element = HalfElement<Bfloat16Format>;

#else

/// Two vectors of float32, of the even and the odd elements of one stored vector: a bfloat16 is the
/// upper half of a float32, so that shifts and masks suffice and nothing crosses lanes.
struct Bfloat16Element {
  using One = VectorOf<float>;
  using D = One::D;
  using Bits = hn::RebindToUnsigned<D>;
  struct V {
    One::V even, odd;
  };
  static constexpr size_t kBytes = 2;
  static constexpr uint32_t kUpper = 0xFFFF0000u;

  static HWY_INLINE size_t step_bytes() { return hn::Lanes(D()) * 2 * kBytes; }
  static HWY_INLINE V load(const std::byte* from) {
    const hn::Repartition<uint16_t, D> stored;
    const auto both =
        hn::BitCast(Bits(), hn::LoadU(stored, reinterpret_cast<const uint16_t*>(from)));
    return {hn::BitCast(D(), hn::ShiftLeft<16>(both)),
            hn::BitCast(D(), hn::And(both, hn::Set(Bits(), kUpper)))};
  }
  static HWY_INLINE void store(V v, std::byte* to) {
    const auto even = hn::ShiftRight<16>(round_to_upper_half(v.even));
    const auto odd = hn::And(round_to_upper_half(v.odd), hn::Set(Bits(), kUpper));
    const hn::Repartition<uint16_t, D> stored;
    hn::StoreU(hn::BitCast(stored, hn::Or(even, odd)), stored, reinterpret_cast<uint16_t*>(to));
  }
  static HWY_INLINE V fill(double value) { return {One::fill(value), One::fill(value)}; }
  template <class Op>
  static HWY_INLINE V apply(V a, V b) {
    return {Op::apply(D(), a.even, b.even), Op::apply(D(), a.odd, b.odd)};
  }
  static HWY_INLINE V finish(V v) { return {One::finish(v.even), One::finish(v.odd)}; }
};

#endif

// The processor's own conversions (F16C) where they are part of the target; they round as
// the portable form below does.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

struct Float16Element : VectorOf<float, 2> {
  using Stored = hn::Rebind<hwy::float16_t, D>;

  static HWY_INLINE V load(const std::byte* from) {
    return hn::PromoteTo(D(), hn::LoadU(Stored(), reinterpret_cast<const hwy::float16_t*>(from)));
  }
  static HWY_INLINE void store(V v, std::byte* to) {
    hn::StoreU(hn::DemoteTo(Stored(), v), Stored(), reinterpret_cast<hwy::float16_t*>(to));
  }
};

#else

// Highway's software conversion to float16 truncates, so this is our own. half.cc has the same in
// scalar form, with comments.
struct Float16Format {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  using Bits = hn::RebindToUnsigned<D>;
  using VBits = hn::Vec<Bits>;

  static HWY_INLINE V expand(VBits half) {
    const D d;
    const Bits u;
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(u, 0x7FFFu)));
    const auto exponent = hn::And(magnitude, hn::Set(u, 0x1Fu << 23));
    const auto normal = hn::Add(magnitude, hn::Set(u, (127u - 15) << 23));
    const auto special = hn::Add(normal, hn::Set(u, (128u - 16) << 23));
    const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(normal, hn::Set(u, 1u << 23))),
                                   hn::BitCast(d, hn::Set(u, 113u << 23)));
    auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(u, 0x1Fu << 23)), special, normal);
    bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(u)), hn::BitCast(u, subnormal), bits);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(u, 0x8000u)));
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  static HWY_INLINE VBits round(V v) {
    const D d;
    const Bits u;
    const hn::RebindToSigned<D> i;  // unsigned comparisons are slow before AVX-512
    const auto bits = hn::BitCast(u, v);
    const auto sign = hn::And(bits, hn::Set(u, 0x80000000u));
    const auto magnitude = hn::Xor(bits, sign);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(u, 1u));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(u, (112u << 23) - 0xFFFu)), odd));
    const auto magic = hn::Set(u, 126u << 23);
    const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic));
    const auto subnormal = hn::Sub(hn::BitCast(u, shifted), magic);
    const auto signed_magnitude = hn::BitCast(i, magnitude);
    const auto is = [&](auto mask) HWY_ATTR { return hn::RebindMask(u, mask); };
    auto half =
        hn::IfThenElse(is(hn::Lt(signed_magnitude, hn::Set(i, 113 << 23))), subnormal, normal);
    half = hn::IfThenElse(is(hn::Gt(signed_magnitude, hn::Set(i, (143 << 23) - 1))),
                          hn::Set(u, 0x7C00u), half);
    half = hn::IfThenElse(is(hn::Gt(signed_magnitude, hn::Set(i, 255 << 23))), hn::Set(u, 0x7E00u),
                          half);
    return hn::Or(half, hn::ShiftRight<16>(sign));
  }
};

using Float16Element = HalfElement<Float16Format>;

#endif

/// The element policy of a C++ element type.
template <class T>
struct ElementOf {
  using Integer = std::conditional_t<std::is_signed_v<T>, hwy::SignedFromSize<sizeof(T)>,
                                     hwy::UnsignedFromSize<sizeof(T)>>;
  using Type = PlainElement<std::conditional_t<std::is_integral_v<T>, Integer, T>>;
};
template <>
struct ElementOf<float16> {
  using Type = Float16Element;
};
template <>
struct ElementOf<bfloat16> {
  using Type = Bfloat16Element;
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ropewalk
HWY_AFTER_NAMESPACE();

#endif  // include guard, per target

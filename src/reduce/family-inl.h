// The kernels of one family of types, ROPEWALK_FAMILY; included at the end of a file for each.
// Without an include guard, since foreach_target.h includes that file once per instruction set.
#include <utility>

#include "hwy/foreach_target.h"
// foreach_target.h comes before the headers that it includes once per target.
#include "hwy/highway.h"
#include "reduce/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {
namespace {

[[maybe_unused]] Kernels kernels_of(DataType type) {
  return visit_type(type, []<class T>(std::type_identity<T>) -> Kernels {
    if constexpr (family_of<T> == ROPEWALK_FAMILY)
      return kernels_of_type<T>();
    else
      return {};
  });
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ropewalk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ropewalk {

#if HWY_ARCH_X86

template <>
Kernels find_kernels<ROPEWALK_FAMILY>(DataType type) {
  using Find = Kernels (*)(DataType);
  // Best first. Those that were not compiled are null.
  constexpr std::pair<int64_t, Find> kCompiled[] = {
      {HWY_AVX3, HWY_CHOOSE_AVX3(kernels_of)},
      {HWY_AVX2, HWY_CHOOSE_AVX2(kernels_of)},
      {HWY_SSE4, HWY_CHOOSE_SSE4(kernels_of)},
      {HWY_SSSE3, HWY_CHOOSE_SSSE3(kernels_of)},
  };
  const int64_t usable = usable_targets();
  for (const auto& [target, find] : kCompiled)
    if (find != nullptr && (usable & target) != 0) return find(type);
  return HWY_STATIC_DISPATCH(kernels_of)(type);
}

#else

HWY_EXPORT(kernels_of);

template <>
Kernels find_kernels<ROPEWALK_FAMILY>(DataType type) {
  return HWY_DYNAMIC_DISPATCH(kernels_of)(type);
}

#endif
}  // namespace ropewalk
#endif  // HWY_ONCE

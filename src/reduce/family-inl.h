// The kernels of one family of types, ROPEWALK_FAMILY; included at the end of a file for each.
// Without an include guard, since foreach_target.h includes that file once per instruction set.
#include "hwy/foreach_target.h"
// foreach_target.h comes before the headers that it includes once per target.
#include "hwy/highway.h"
#include "reduce/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {
namespace {

Kernels kernels_of(DataType type) {
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

HWY_EXPORT(kernels_of);

template <>
Kernels find_kernels<ROPEWALK_FAMILY>(DataType type) {
  return HWY_DYNAMIC_DISPATCH(kernels_of)(type);
}

}  // namespace ropewalk
#endif  // HWY_ONCE

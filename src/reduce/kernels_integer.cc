// The integers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_integer.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes before the headers that it includes once per target.
#include "hwy/highway.h"
#include "reduce/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {

ReduceKernel find_integer_kernel(DataType type, ReduceKind kind) {
  return find_kernel<Family::integer>(type, kind);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ropewalk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ropewalk {

HWY_EXPORT(find_integer_kernel);

ReduceKernel integer_kernel(DataType type, ReduceKind kind) {
  return HWY_DYNAMIC_DISPATCH(find_integer_kernel)(type, kind);
}

}  // namespace ropewalk
#endif  // HWY_ONCE

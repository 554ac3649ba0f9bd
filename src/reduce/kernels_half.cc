// Half types, computed in float32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_half.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes before the headers that it includes once per target.
#include "hwy/highway.h"
#include "reduce/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {

ReduceKernel find_half_kernel(DataType type, ReduceKind kind) {
  return find_kernel<Family::half>(type, kind);
}

MapKernel find_half_map_kernel(DataType type, MapKind kind) {
  return find_map_kernel<Family::half>(type, kind);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ropewalk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ropewalk {

HWY_EXPORT(find_half_kernel);
HWY_EXPORT(find_half_map_kernel);

ReduceKernel half_kernel(DataType type, ReduceKind kind) {
  return HWY_DYNAMIC_DISPATCH(find_half_kernel)(type, kind);
}

MapKernel half_map_kernel(DataType type, MapKind kind) {
  return HWY_DYNAMIC_DISPATCH(find_half_map_kernel)(type, kind);
}

}  // namespace ropewalk
#endif  // HWY_ONCE

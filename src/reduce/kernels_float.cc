// Floating types that are computed as they are stored.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_float.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes before the headers that it includes once per target.
#include "hwy/highway.h"
#include "reduce/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {

ReduceKernel find_float_kernel(DataType type, ReduceKind kind) {
  return find_kernel<Family::floating>(type, kind);
}

MapKernel find_float_map_kernel(DataType type, MapKind kind) {
  return find_map_kernel<Family::floating>(type, kind);
}

const char* find_target_name() {
  return hwy::TargetName(HWY_TARGET);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ropewalk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "reduce/reduce.h"

namespace ropewalk {

HWY_EXPORT(find_float_kernel);
HWY_EXPORT(find_float_map_kernel);
HWY_EXPORT(find_target_name);

ReduceKernel float_kernel(DataType type, ReduceKind kind) {
  return HWY_DYNAMIC_DISPATCH(find_float_kernel)(type, kind);
}

MapKernel float_map_kernel(DataType type, MapKind kind) {
  return HWY_DYNAMIC_DISPATCH(find_float_map_kernel)(type, kind);
}

const char* reduce_target_name() {
  return HWY_DYNAMIC_DISPATCH(find_target_name)();
}

}  // namespace ropewalk
#endif  // HWY_ONCE

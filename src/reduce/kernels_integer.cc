// The integers. Sums and products wrap, so that signed types share the unsigned kernels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_integer.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes before the headers that it includes once per target.
#include "hwy/highway.h"
#include "reduce/kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ropewalk {
namespace HWY_NAMESPACE {

template <class T>
ReduceKernel find_signed(ReduceKind kind) {
  if (kind == ReduceKind::min) return &reduce_elements<PlainElement<T>, Min>;
  if (kind == ReduceKind::max) return &reduce_elements<PlainElement<T>, Max>;
  return kernel_of<PlainElement<hwy::MakeUnsigned<T>>>(kind);
}

ReduceKernel find_integer_kernel(DataType type, ReduceKind kind) {
  switch (type) {
    case DataType::int8:
      return find_signed<int8_t>(kind);
    case DataType::int16:
      return find_signed<int16_t>(kind);
    case DataType::int32:
      return find_signed<int32_t>(kind);
    case DataType::int64:
      return find_signed<int64_t>(kind);
    case DataType::uint16:
      return kernel_of<PlainElement<uint16_t>>(kind);
    case DataType::uint32:
      return kernel_of<PlainElement<uint32_t>>(kind);
    case DataType::uint64:
      return kernel_of<PlainElement<uint64_t>>(kind);
    default:
      return kernel_of<PlainElement<uint8_t>>(kind);
  }
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

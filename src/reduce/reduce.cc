#include "reduce/reduce.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "reduce/kernels.h"
#include "reduce/user_reduction.h"

namespace ropewalk {
namespace {

/// What `kind` does to two elements: sum, prod, min or max.
ReduceKind pairwise(ReduceKind kind) {
  return kind == ReduceKind::avg || kind == ReduceKind::scaled_sum ? ReduceKind::sum : kind;
}

Family family(DataType type) {
  return visit_type(type, []<class T>(std::type_identity<T>) { return family_of<T>; });
}

ReduceKernel find_kernel(DataType type, ReduceKind kind) {
  switch (family(type)) {
    case Family::floating:
      return float_kernel(type, kind);
    case Family::half:
      return half_kernel(type, kind);
    default:
      return integer_kernel(type, kind);
  }
}

/// Of a floating type.
MapKernel find_map_kernel(DataType type, MapKind kind) {
  return family(type) == Family::half ? half_map_kernel(type, kind) : float_map_kernel(type, kind);
}

/// Looking for the best instruction set takes as long as adding a short message.
ReduceKernel kernel_for(DataType type, ReduceKind kind) {
  using Table = std::array<std::array<ReduceKernel, kReduceKinds>, kDataTypes>;
  static const Table table = [] {
    Table found;
    for (int t = 0; t < kDataTypes; ++t)
      for (int k = 0; k < kReduceKinds; ++k)
        found[t][k] = find_kernel(static_cast<DataType>(t), pairwise(static_cast<ReduceKind>(k)));
    return found;
  }();
  return table[static_cast<size_t>(type)][static_cast<size_t>(kind)];
}

[[maybe_unused]] bool is_aligned(const std::byte* element, DataType type) {
  return reinterpret_cast<uintptr_t>(element) % size_of(type) == 0;
}

void copy_to_all(const ReduceArguments& a, size_t bytes) {
  if (a.destination_count == 1) {
    if (a.destinations[0] != a.sources[0]) std::memcpy(a.destinations[0], a.sources[0], bytes);
    return;
  }
  // A sum of one source is a copy that reads it once for all destinations.
  ReduceArguments as_bytes = a;
  as_bytes.count = bytes;
  integer_kernel(DataType::uint8, ReduceKind::sum)(as_bytes);
}

/// Not vectorized: averages of integers are rare, and small where they occur.
template <class T>
void divide_integers(std::byte* data, size_t count, int divisor) {
  T* values = reinterpret_cast<T*>(data);
  if constexpr (sizeof(T) < sizeof(int)) {
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<T>(values[i] / divisor);
  } else {
    const T typed = static_cast<T>(divisor);
    for (size_t i = 0; i < count; ++i) values[i] /= typed;
  }
}

}  // namespace

bool is_reducible(DataType type, const ReduceOp& op) {
  if (static_cast<int>(type) >= kDataTypes) return false;
  if (static_cast<int>(op.kind) >= kReduceKinds) return false;
  if (op.kind == ReduceKind::scaled_sum) return is_floating(type);
  return op.kind != ReduceKind::user || op.function != nullptr;
}

void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
            size_t count, DataType type, const ReduceOp& op) {
  assert(!destinations.empty() && destinations.size() <= kReduceFanMax);
  assert(!sources.empty() && sources.size() <= kReduceFanMax);
  assert(is_reducible(type, op));
  assert(std::ranges::all_of(sources, [&](auto* source) { return is_aligned(source, type); }));
  assert(std::ranges::all_of(destinations, [&](auto* one) { return is_aligned(one, type); }));
  if (count == 0) return;
  const ReduceArguments arguments{destinations.data(), destinations.size(), sources.data(),
                                  sources.size(), count};
  if (sources.size() == 1) {
    copy_to_all(arguments, count * size_of(type));
  } else if (op.kind == ReduceKind::user) {
    reduce_user(arguments, type, op);
  } else {
    kernel_for(type, op.kind)(arguments);
  }
}

void scale(std::byte* destination, const std::byte* source, size_t count, DataType type,
           double factor) {
  assert(is_floating(type));
  assert(is_aligned(source, type) && is_aligned(destination, type));
  find_map_kernel(type, MapKind::multiply)(destination, source, count, factor);
}

void divide(std::byte* data, size_t count, DataType type, int divisor) {
  assert(divisor >= 1);
  assert(is_aligned(data, type));
  visit_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_integral_v<T>)
      divide_integers<T>(data, count, divisor);
    else
      find_map_kernel(type, MapKind::divide)(data, data, count, divisor);
  });
}

}  // namespace ropewalk

// The seam between the public functions (reduce.cc) and the vector kernels, which are compiled once
// per instruction set (kernels_*.cc) and chosen at run time.
#pragma once

#include <cstddef>

#include "reduce/element.h"

namespace ropewalk {

/// One reduce() call. `source_count` and `destination_count` are at least 1.
struct ReduceArguments {
  std::byte* const* destinations;
  size_t destination_count;
  const std::byte* const* sources;
  size_t source_count;
  size_t count;  // elements
};
using ReduceKernel = void (*)(const ReduceArguments&);

/// destination[i] = source[i] * operand, or / operand.
using MapKernel = void (*)(std::byte* destination, const std::byte* source, size_t count,
                           double operand);
enum class MapKind { multiply, divide };

/// Which file has the kernels of a type: each takes long to compile.
enum class Family { floating, half, integer };
template <class T>
inline constexpr Family family_of = is_half<T>              ? Family::half
                                    : std::is_integral_v<T> ? Family::integer
                                                            : Family::floating;

/// The kernel on the best instruction set that the machine has. `kind` is sum, prod, min or max.
/// The type must belong to the family.
ReduceKernel float_kernel(DataType type, ReduceKind kind);
ReduceKernel half_kernel(DataType type, ReduceKind kind);
ReduceKernel integer_kernel(DataType type, ReduceKind kind);
MapKernel float_map_kernel(DataType type, MapKind kind);
MapKernel half_map_kernel(DataType type, MapKind kind);

}  // namespace ropewalk

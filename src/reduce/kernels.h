// The seam between the public functions (reduce.cc) and the vector kernels, which are compiled once
// per instruction set (kernels_*.cc) and chosen at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

/// Those of one type.
struct Kernels {
  const char* target = "";  // the instruction set's name
  /// By ReduceKind; null for user.
  std::array<ReduceKernel, kReduceKinds> reduce = {};
  MapKernel multiply = nullptr, divide = nullptr;  // of floating types
};

/// Which file has the kernels of a type: each takes long to compile.
enum class Family { floating, half, integer };
template <class T>
inline constexpr Family family_of = is_half<T>              ? Family::half
                                    : std::is_integral_v<T> ? Family::integer
                                                            : Family::floating;

/// The kernels of a type of the family on the best instruction set that the machine has.
template <Family family>
Kernels find_kernels(DataType type);
template <>
Kernels find_kernels<Family::floating>(DataType type);
template <>
Kernels find_kernels<Family::half>(DataType type);
template <>
Kernels find_kernels<Family::integer>(DataType type);

/// The instruction sets that this machine has, in bits of Highway's targets. Without any of those
/// that were compiled, kernels are of HWY_STATIC_TARGET.
int64_t usable_targets();
/// For tests and benchmarks, while nobody reduces: only those, 0 being all again. reduce(), which
/// looks for the best one once, looks again.
void limit_targets(int64_t targets);
/// What limit_targets has reduce() do.
void choose_kernels_again();

/// User functions are called on blocks of at most so much, so that a block stays in cache while all
/// sources are added and all destinations written.
inline constexpr size_t kUserBlockBytes = 8192;

}  // namespace ropewalk

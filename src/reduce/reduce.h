// Element-wise reduction kernels, for every DataType and ReduceOp, on the best instruction set of
// the machine at hand (Highway's run-time dispatch). float16 and bfloat16 are computed in float32
// and rounded once per call (to nearest even). Spans may be unaligned to vectors but must be
// aligned to the element. Thread-safe; allocates nothing; reads and writes each element once.
//
// The bits of a result depend on its operands and their order only, never on the instruction set,
// the vector length, the alignment or how a range is cut into calls. So a NaN that is computed is
// always the type's positive quiet NaN with no payload (processors differ on which NaN to hand on),
// and min and max take -0 to be below +0.
#pragma once

#include <span>

#include "ropewalk/types.h"

namespace ropewalk {

// All data lies aligned for its type.

/// True when `op` is defined on `type` (scaled_sum needs a floating type; user needs a function).
bool is_reducible(DataType type, const ReduceOp& op);

/// destinations[*][i] = sources[0][i] (+) sources[1][i] (+) ... in that order, for i < count, where
/// (+) is the pairwise part of `op`: avg and scaled_sum add; user calls the function.
/// At least one source and one destination, at most kReduceFanMax of each. A destination may equal
/// a source exactly; other overlap is not allowed. One source: a copy to every destination.
inline constexpr size_t kReduceFanMax = 64;
void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
            size_t count, DataType type, const ReduceOp& op);

/// destination[i] = source[i] * factor, computed in float32 for halves, in the type itself for
/// float32 and float64. destination may equal source. Floating types only. For scaled_sum's input.
void scale(std::byte* destination, const std::byte* source, size_t count, DataType type,
           double factor);

/// data[i] = data[i] / divisor; integers truncate toward zero, halves are divided in float32. For
/// avg's result.
void divide(std::byte* data, size_t count, DataType type, int divisor);

/// The name of the instruction set in use: "AVX2", "AVX3", "SSE4", ...
const char* reduce_target_name();

}  // namespace ropewalk

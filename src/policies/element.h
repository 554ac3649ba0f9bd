// Arithmetic on tensor elements: halves are computed in float, float and double in themselves.
#pragma once

#include <type_traits>

#include "reduce/reduce.h"
#include "ropewalk/types.h"

namespace ropewalk {

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
Wide<T> widen(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return value;
  else
    return to_float(value);
}

/// Rounds to nearest even where T is narrower.
template <class T>
T narrow(Wide<T> value) {
  if constexpr (std::is_same_v<T, float16>)
    return to_float16(value);
  else if constexpr (std::is_same_v<T, bfloat16>)
    return to_bfloat16(value);
  else
    return value;
}

}  // namespace ropewalk

// Arithmetic on elements one by one: halves are computed in float, all others in themselves.
#pragma once

#include <limits>

#include "ropewalk/types.h"

namespace ropewalk {

template <class T>
inline constexpr bool is_half = is_element<T> && !std::is_arithmetic_v<T>;

template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

template <class T>
Wide<T> widen(T value) {
  if constexpr (is_half<T>)
    return to_float(value);
  else
    return value;
}

/// Rounds to nearest even where T is narrower.
template <class T>
T narrow(Wide<T> value) {
  if constexpr (is_half<T>)
    return T::from(value);
  else
    return value;
}

/// Binary digits: all integers of so many bits are exact in T.
template <class T>
constexpr int digits_of() {
  if constexpr (is_half<T>)
    return T::digits;
  else
    return std::numeric_limits<T>::digits;
}

template <template <class...> class List, class First, class... Rest>
struct ElementList {
  using Type = List<Rest...>;
};
#define ROPEWALK_NEXT(name, type) , type
/// The C++ types of every DataType, and of the floating ones, as arguments of `List`.
template <template <class...> class List>
using AllElements =
    typename ElementList<List, void ROPEWALK_DATA_TYPES(ROPEWALK_NEXT, ROPEWALK_NEXT)>::Type;
template <template <class...> class List>
using FloatingElements =
    typename ElementList<List, void ROPEWALK_DATA_TYPES(ROPEWALK_NEXT, ROPEWALK_NOTHING)>::Type;
#undef ROPEWALK_NEXT

}  // namespace ropewalk

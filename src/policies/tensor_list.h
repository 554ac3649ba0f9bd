// A list of tensors as one vector, its tensors one behind the other; and what the policies refuse.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "ropewalk/policies.h"

namespace ropewalk {

/// Of all tensors together.
template <class T>
size_t elements_of(TensorList<T> list) {
  size_t total = 0;
  for (const std::span<T>& tensor : list) total += tensor.size();
  return total;
}

/// Throws Error(invalid_argument) where `policy` had other than `earlier` elements before.
template <class T>
void check_elements(const char* policy, TensorList<T> list, size_t earlier) {
  if (const size_t total = elements_of(list); total != earlier)
    throw Error(
        ErrorCode::invalid_argument, policy,
        fmt::format("the list of tensors has {} elements, but {} in earlier calls", total, earlier),
        "give every call of one policy object the same tensors (or their gradients)");
}

template <class T>
void pack(TensorList<T> list, T* to) {
  for (const std::span<T>& tensor : list) to = std::ranges::copy(tensor, to).out;
}

template <class T>
void unpack(const T* from, TensorList<T> list) {
  for (const std::span<T>& tensor : list) {
    std::copy(from, from + tensor.size(), tensor.begin());
    from += tensor.size();
  }
}

/// Of both kinds of elastic averaging.
inline void check_elastic(const char* policy, int tau, double alpha) {
  if (tau < 1)
    throw Error(ErrorCode::invalid_argument, policy, fmt::format("tau is {}", tau),
                "average at every tau-th step, with tau at least 1");
  if (!(alpha > 0 && alpha < 1))  // catches NaN too
    throw Error(ErrorCode::invalid_argument, policy, fmt::format("alpha is {}", alpha),
                "use a moving rate between 0 and 1, both excluded");
}

}  // namespace ropewalk

// Random numbers that are the same with every standard library (std::shuffle and the standard
// distributions are not), so that all ranks agree whatever they were built with.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace digits {

using Random = std::mt19937_64;

/// Uniform in [0, 1).
inline double uniform(Random& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

/// Fisher and Yates.
template <class T>
void shuffle(std::span<T> items, Random& random) {
  for (size_t i = items.size(); i > 1; --i) {
    const auto j = static_cast<size_t>(uniform(random) * static_cast<double>(i));
    std::swap(items[i - 1], items[j]);
  }
}

}  // namespace digits

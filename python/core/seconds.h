// Python counts time in seconds, as a float.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "invalid.h"

namespace ropewalk::python {

/// Throws Error(invalid_argument) where it is no time to wait.
inline std::optional<std::chrono::nanoseconds> nanoseconds_of(std::optional<double> seconds) {
  if (!seconds) return {};
  constexpr double kSecondsMax = 1e9;              // fits in 64 bits of nanoseconds
  if (!(*seconds > 0 && *seconds <= kSecondsMax))  // catches NaN too
    reject("timeout", fmt::format("timeout is {} s", *seconds),
           "give seconds above 0, or None for the communicator's own");
  return std::chrono::nanoseconds(static_cast<int64_t>(*seconds * 1e9));
}

}  // namespace ropewalk::python

// Times of the simulator.
#pragma once

#include <cstdint>

namespace ropewalk {

inline int64_t picoseconds(double seconds) {
  return static_cast<int64_t>(seconds * 1e12 + 0.5);
}

}  // namespace ropewalk

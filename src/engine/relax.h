// What a thread does between two looks in a loop that spins.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ropewalk {

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace ropewalk

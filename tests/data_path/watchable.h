// Whether a program's allocations and system calls can be watched: not under sanitizers that bring
// an allocator, and make system calls, of their own.
#pragma once

#include <cstddef>  // defines __GLIBC__ where it is the C library

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROPEWALK_WATCHABLE 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ROPEWALK_WATCHABLE 0
#endif
#endif
#if !defined(ROPEWALK_WATCHABLE) && defined(__GLIBC__)
#define ROPEWALK_WATCHABLE 1
#elif !defined(ROPEWALK_WATCHABLE)
#define ROPEWALK_WATCHABLE 0
#endif

namespace ropewalk::testing {
inline constexpr bool kWatchable = ROPEWALK_WATCHABLE;
inline constexpr const char* kWhyNotWatchable =
    "this sanitizer, or C library, has an allocator and system calls of its own";
}  // namespace ropewalk::testing

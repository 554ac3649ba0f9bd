#include "tests/data_path/allocation_watch.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "tests/data_path/calls.h"

namespace ropewalk::testing {
namespace {

struct Watch {
  bool armed = false;
  size_t count = 0;
  const char* function = nullptr;  // of the first
  size_t bytes = 0;
  Calls calls;
};
thread_local Watch watch;

[[maybe_unused]] void note(const char* function, size_t bytes) {
  if (!watch.armed) return;
  watch.armed = false;  // taking the calls may allocate
  if (watch.count++ == 0) {
    watch.function = function;
    watch.bytes = bytes;
    watch.calls.take();
  }
  watch.armed = true;
}

}  // namespace

std::string allocations_during(const std::function<void()>& body) {
  watch = {};
  watch.calls.take();  // the first time loads a library
  watch.armed = true;
  body();
  watch.armed = false;
  if (watch.count == 0) return {};
  return fmt::format("{} allocations or releases; the first: {}({}) from\n{}", watch.count,
                     watch.function, watch.bytes, watch.calls.text());
}

}  // namespace ropewalk::testing

#if ROPEWALK_WATCHABLE
// The C library's allocator, noted.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t bytes) noexcept {
  ropewalk::testing::note("malloc", bytes);
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  ropewalk::testing::note("calloc", count * bytes);
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, size_t bytes) noexcept {
  ropewalk::testing::note("realloc", bytes);
  return __libc_realloc(old, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept {
  ropewalk::testing::note("memalign", bytes);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  ropewalk::testing::note("aligned_alloc", bytes);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** at, size_t alignment, size_t bytes) noexcept {
  ropewalk::testing::note("posix_memalign", bytes);
  *at = __libc_memalign(alignment, bytes);
  return *at == nullptr ? ENOMEM : 0;
}
void free(void* old) noexcept {
  if (old != nullptr) ropewalk::testing::note("free", 0);
  __libc_free(old);
}
}
#endif

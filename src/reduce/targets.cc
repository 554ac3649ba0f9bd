// Which of Highway's instruction sets this machine can run.
#include "hwy/targets.h"

#include "reduce/kernels.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace ropewalk {
namespace {

#if HWY_ARCH_X86

int64_t limit = 0;  // 0: none

/// clang 14 does not know their names. They have no registers that the kernel must save, which
/// __builtin_cpu_supports looks at.
bool has_f16c_and_lzcnt() {
  constexpr unsigned kExtended = 0x80000001, kLzcnt = 1 << 5;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_F16C) == 0) return false;
  return __get_cpuid(kExtended, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kLzcnt) != 0;
}

/// What libhwy would say, except for sets that are not compiled. As a program starts, libhwy
/// measures the clock, which takes each rank 4 ms, half of its start.
int64_t machine_targets() {
  __builtin_cpu_init();
  int64_t found = 0;
  if (!__builtin_cpu_supports("ssse3")) return found;
  found |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("aes") ||
      !__builtin_cpu_supports("pclmul"))
    return found;
  found |= HWY_SSE4;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") || !has_f16c_and_lzcnt())
    return found;
  found |= HWY_AVX2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd"))
    found |= HWY_AVX3;
  return found;
}

#endif

}  // namespace

#if HWY_ARCH_X86

int64_t usable_targets() {
  static const int64_t found = machine_targets();
  return limit != 0 ? found & limit : found;
}

void limit_targets(int64_t targets) {
  limit = targets;
  choose_kernels_again();
}

#else

int64_t usable_targets() {
  return hwy::SupportedTargets();
}

void limit_targets(int64_t targets) {
  hwy::SetSupportedTargetsForTest(targets);
  choose_kernels_again();
}

#endif

}  // namespace ropewalk

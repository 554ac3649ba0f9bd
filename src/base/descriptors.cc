#include "base/descriptors.h"

#include <algorithm>

namespace ropewalk {

rlimit descriptor_limits() {
  rlimit limits = {RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(RLIMIT_NOFILE, &limits);
  return limits;
}

void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 1 << 20;
  rlimit limits = descriptor_limits();
  if (limits.rlim_cur >= std::min(limits.rlim_max, kEnough)) return;
  limits.rlim_cur = std::min(limits.rlim_max, kEnough);
  setrlimit(RLIMIT_NOFILE, &limits);
}

}  // namespace ropewalk

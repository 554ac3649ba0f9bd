#include "base/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>

#include "base/unique_fd.h"

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

void reserve_descriptors(int count) {
  assert(count > 0);
  const rlim_t most = descriptor_limits().rlim_cur;
  if (most < static_cast<rlim_t>(count)) count = static_cast<int>(most);
  const UniqueFd any(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd last(::fcntl(any.get(), F_DUPFD_CLOEXEC, count - 1));
}

std::string advice_for_descriptors(int error) {
  switch (error) {
    case EMFILE:
      return fmt::format("raise the limit of open files, now {} (ulimit -n)",
                         descriptor_limits().rlim_cur);
    case ENFILE:
      return "raise the machine's limit of open files (sysctl fs.file-max)";
    default:
      return {};
  }
}

}  // namespace ropewalk

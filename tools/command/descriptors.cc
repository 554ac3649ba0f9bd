#include "tools/command/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ropewalk/status.h"

namespace ropewalk::tools {

void occupy_standard_descriptors() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // takes the lowest free number: fd
  }
}

DescriptorLimit::DescriptorLimit() {
  getrlimit(RLIMIT_NOFILE, &found_);
}

void DescriptorLimit::raise_to(rlim_t needed, std::string_view what) const {
  if (found_.rlim_cur >= needed) return;
  const rlimit raised{needed, found_.rlim_max};
  if (needed <= found_.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) return;
  throw Error(ErrorCode::exhausted, "open files",
              fmt::format("{} needs {}; the limit is {}, and root alone may raise it above {}",
                          what, needed, found_.rlim_cur, found_.rlim_max),
              fmt::format("ulimit -n {}", needed));
}

void DescriptorLimit::restore() const {
  setrlimit(RLIMIT_NOFILE, &found_);
}

}  // namespace ropewalk::tools

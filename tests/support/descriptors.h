// For tests of what happens where a process may open no more files.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

namespace ropewalk::testing {

/// Of this process.
inline int open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

/// No more descriptors for this process, except for those that are closed.
inline void use_up_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int next = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
  ::close(next);
  limit.rlim_cur = static_cast<rlim_t>(next);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace ropewalk::testing

#include "standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ropewalk::tools {

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is this one. Read only: what is written there fails with EBADF.
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDONLY);
  }
}

bool flush_standard_output() {
  const bool had_failed = std::ferror(stdout) != 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error = errno;
  if (flushed && !had_failed) return true;
  std::fprintf(stderr, "ropewalk: standard output cannot be written%s%s\n", flushed ? "" : ": ",
               flushed ? "" : strerror(error));
  return false;
}

}  // namespace ropewalk::tools

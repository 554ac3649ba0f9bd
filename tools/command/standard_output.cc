#include "tools/command/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ropewalk::tools {

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

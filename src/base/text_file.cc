#include "base/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.h"
#include "ropewalk/status.h"

namespace ropewalk {

std::string read_text_file(const std::string& path, size_t bytes_max, const std::string& operation,
                           const std::string& advice) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, operation,
                fmt::format("cannot read {}: {}", path, why), advice);
  };
  // To open a FIFO waits for its writer, unless it is told not to.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat found {};
  if (!fd || ::fstat(fd.get(), &found) != 0) fail(std::strerror(errno));
  if (S_ISDIR(found.st_mode)) fail(std::strerror(EISDIR));
  if (!S_ISREG(found.st_mode)) fail("it is no regular file");
  std::string text;
  char block[16384];
  ssize_t got = 0;
  while (text.size() <= bytes_max && (got = ::read(fd.get(), block, sizeof block)) > 0)
    text.append(block, static_cast<size_t>(got));
  if (got < 0) fail(std::strerror(errno));
  if (text.empty()) fail("it is empty");
  if (text.size() > bytes_max) fail(fmt::format("it is longer than {} bytes", bytes_max));
  return text;
}

}  // namespace ropewalk

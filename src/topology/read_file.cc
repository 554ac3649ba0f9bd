#include "topology/read_file.h"

#include <fcntl.h>
#include <unistd.h>

namespace ropewalk {

std::optional<std::string> read_file(const std::string& path) {
  constexpr size_t kBytesMax = size_t{1} << 20;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text;
  char block[4096];
  ssize_t got = 0;
  while (text.size() < kBytesMax && (got = ::read(fd, block, sizeof block)) > 0)
    text.append(block, static_cast<size_t>(got));
  ::close(fd);
  if (got < 0) return {};
  return text;
}

}  // namespace ropewalk

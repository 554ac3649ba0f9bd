#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ropewalk::peers {

void* map_file(const std::string& path, size_t bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  void* memory = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  return memory;
}

Segment::Segment(const std::string& path)
    : content_(static_cast<SegmentContent*>(map_file(path, sizeof(SegmentContent)))) {}

Segment::~Segment() {
  munmap(content_, sizeof(SegmentContent));
}

}  // namespace ropewalk::peers

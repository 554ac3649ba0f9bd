#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace ropewalk::peers {

Segment::Segment(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  void* memory = MAP_FAILED;
  if (ftruncate(fd, sizeof(SegmentContent)) == 0) {
    memory = mmap(nullptr, sizeof(SegmentContent), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_POPULATE, fd, 0);
  }
  const int error = errno;
  close(fd);
  if (memory == MAP_FAILED) throw std::system_error(error, std::generic_category(), path);
  content_ = static_cast<SegmentContent*>(memory);
}

Segment::~Segment() {
  munmap(content_, sizeof(SegmentContent));
}

}  // namespace ropewalk::peers

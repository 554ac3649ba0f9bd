#include "descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace ropewalk::tools {

void occupy_standard_descriptors() {
  for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // takes the lowest free number: fd
  }
}

}  // namespace ropewalk::tools

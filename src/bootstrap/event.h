// A wake-up between threads: an eventfd.
#pragma once

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

#include "base/unique_fd.h"
#include "bootstrap/net.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

/// Thread-safe. Readable from set() until clear().
class Event {
 public:
  Event() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_)
      throw Error(ErrorCode::exhausted, "bootstrap", "no eventfd: " + errno_text(errno),
                  "raise the limit of open files: ulimit -n");
  }
  int fd() const noexcept { return fd_.get(); }
  void set() noexcept {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n =
        ::write(fd_.get(), &one, sizeof one);  // full: still readable
  }
  void clear() noexcept {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(fd_.get(), &count, sizeof count);
  }

 private:
  UniqueFd fd_;
};

}  // namespace ropewalk::bootstrap

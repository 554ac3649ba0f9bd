// Waiting for the sockets that a SocketSource has promised.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <system_error>

#include "bootstrap/sockets.h"

namespace ropewalk {

/// Has an epoll set tell of new sockets while some are awaited. Edge-triggered: sockets that other
/// ranks opened, and nobody here has asked for yet, keep the source's descriptor readable.
class SocketWatch {
 public:
  explicit SocketWatch(SocketSource& sockets) : sockets_(sockets) {}

  bool on() const { return on_; }
  /// `tag` comes with the events. Throws Error(system).
  void set(bool on, int epoll_fd, uint64_t tag) {
    const int fd = sockets_.event_fd();
    if (fd < 0 || on == on_) return;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = tag;
    if (epoll_ctl(epoll_fd, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) != 0 && on)
      throw Error(ErrorCode::system, "connect",
                  "epoll_ctl: " + std::generic_category().message(errno),
                  "raise the limit on open files (ulimit -n)");
    on_ = on;
  }

 private:
  SocketSource& sockets_;
  bool on_ = false;
};

}  // namespace ropewalk

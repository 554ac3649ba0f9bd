// Waiting for the sockets that a SocketSource has promised.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "bootstrap/sockets.h"

namespace ropewalk {

/// Has the epoll set tell with `tag` when `fd` is readable. False where it cannot, with errno.
inline bool watch_descriptor(int epoll_fd, int fd, uint64_t tag, uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/// Why a peer is lost whose socket cannot be watched, and what to do. `error`: of watch_descriptor.
inline std::string why_not_watched(int error) {
  return "cannot watch its socket: " + std::generic_category().message(error);
}
inline std::string advice_to_watch(int error) {
  return error == ENOSPC ? "raise the limit: sysctl fs.epoll.max_user_watches" : std::string();
}

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
    if (!on)
      epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
    else if (!watch_descriptor(epoll_fd, fd, tag, EPOLLIN | EPOLLET))
      throw Error(ErrorCode::system, "connect",
                  "cannot watch for sockets: " + std::generic_category().message(errno),
                  advice_to_watch(errno));
    on_ = on;
  }

 private:
  SocketSource& sockets_;
  bool on_ = false;
};

}  // namespace ropewalk

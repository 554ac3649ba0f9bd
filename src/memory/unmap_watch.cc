#include "memory/unmap_watch.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptors.h"
#include "base/start_thread.h"
#include "ropewalk/status.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1  // Linux 5.11
#endif

namespace ropewalk {
namespace {

constexpr uint64_t kFeatures =
    UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE;

int open_userfaultfd(int flags) {
  return static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags));
}

std::string advice_for_watch(int error) {
  switch (error) {
    case EPERM:
      return "sudo sysctl vm.unprivileged_userfaultfd=1; containers: allow userfaultfd in the "
             "seccomp profile";
    case EMFILE:
    case ENFILE:
      return advice_for_descriptors(error);
    default:
      return "a kernel from 5.11 on, with CONFIG_USERFAULTFD";
  }
}

uffdio_range kernel_range(const PageRange& range) {
  return {range.begin, range.bytes()};
}

}  // namespace

std::shared_ptr<UnmapWatch> UnmapWatch::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<UnmapWatch> current;
  const std::lock_guard lock(mutex);
  auto watch = current.lock();
  // A forked child has its parent's, which watches the parent.
  if (watch == nullptr || watch->pid_ != ::getpid()) {
    watch.reset(new UnmapWatch());
    current = watch;
  }
  return watch;
}

UnmapWatch::UnmapWatch() : pid_(::getpid()) {
  open();
  if (!fd_) return;
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!stop_)
    throw Error(ErrorCode::exhausted, "register_memory", "cannot make an event descriptor",
                advice_for_descriptors(errno));
  thread_ = start_thread("register_memory", "ropewalk-unmap", [this] { run(); });
}

void UnmapWatch::open() {
  int fd = open_userfaultfd(UFFD_USER_MODE_ONLY);
  if (fd < 0 && errno == EINVAL) fd = open_userfaultfd(0);
  int error = errno;
  fd_ = UniqueFd(fd);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kFeatures;
  if (fd >= 0 && ::ioctl(fd, UFFDIO_API, &api) == 0) return;
  if (fd >= 0) error = errno;
  fd_ = UniqueFd();
  refusal_ = std::string("the kernel gives no userfaultfd: ") + ::strerror(error);
  advice_ = advice_for_watch(error);
}

UnmapWatch::~UnmapWatch() {
  if (!fd_) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
  // Closing the descriptor lets go whoever waits for an event to be read.
}

void UnmapWatch::add(Listener& listener) {
  const std::lock_guard lock(mutex_);
  listener.next_ = listeners_;
  listeners_ = &listener;
}

void UnmapWatch::remove(Listener& listener) {
  const std::lock_guard lock(mutex_);
  Listener** at = &listeners_;
  while (*at != &listener) at = &(*at)->next_;
  *at = listener.next_;
}

bool UnmapWatch::watch(const PageRange& range) {
  if (!fd_) return false;
  uffdio_register request{};
  request.range = kernel_range(range);
  request.mode = UFFDIO_REGISTER_MODE_WP;
  if (::ioctl(fd_.get(), UFFDIO_REGISTER, &request) == 0) return true;
  if (errno != EINVAL) return false;
  // Perhaps huge pages, which are taken whole.
  const auto* begin = reinterpret_cast<const void*>(range.begin);
  request.range = kernel_range(PageRange::around(begin, range.bytes(), kHugePageBytes));
  return ::ioctl(fd_.get(), UFFDIO_REGISTER, &request) == 0;
}

bool UnmapWatch::settled() noexcept {
  if (!fd_) return true;
  // From before an unmapping begins until its event has been read, every request that would write
  // to memory is refused so. An empty range is refused otherwise.
  uffdio_writeprotect nothing{};
  const auto is_changing = [&] {
    return ::ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EAGAIN;
  };
  if (!is_changing()) return true;
  take_events();
  return !is_changing();
}

void UnmapWatch::take_events() noexcept {
  uffd_msg message;
  while (::read(fd_.get(), &message, sizeof(message)) == sizeof(message)) {
    PageRange gone;
    if (message.event == UFFD_EVENT_REMAP)
      gone = {message.arg.remap.from, message.arg.remap.from + message.arg.remap.len};
    else if (message.event == UFFD_EVENT_REMOVE || message.event == UFFD_EVENT_UNMAP)
      gone = {message.arg.remove.start, message.arg.remove.end};
    for (Listener* listener = listeners_; listener != nullptr; listener = listener->next_)
      listener->forget(gone);
  }
}

void UnmapWatch::run() {
  pollfd fds[2] = {{fd_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (fds[1].revents == 0) {
    if (::poll(fds, 2, -1) < 0) continue;
    const std::lock_guard lock(mutex_);
    take_events();
  }
}

}  // namespace ropewalk

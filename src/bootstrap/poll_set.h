// What a thread sleeps on: descriptors, and the wake-ups of other threads.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <limits>
#include <stop_token>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/unique_fd.h"
#include "bootstrap/net.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {

/// A wake-up between threads: an eventfd. Thread-safe. Readable from set() until clear().
class Event {
 public:
  Event() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (const int error = errno; !fd_)
      throw Error(ErrorCode::exhausted, "bootstrap", "no eventfd: " + errno_text(error),
                  advice_for_descriptors(error));
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

/// Readable once `stop` is asked for.
class StopEvent {
 public:
  explicit StopEvent(std::stop_token stop)
      : stop_(std::move(stop)), callback_(stop_, [this] { event_.set(); }) {}
  int fd() const noexcept { return event_.fd(); }
  bool is_set() const { return stop_.stop_requested(); }

 private:
  const std::stop_token stop_;
  Event event_;
  const std::stop_callback<std::function<void()>> callback_;
};

/// The descriptors that one round of the control thread waits for. Filled again before each wait.
/// One that is closed during a round may be followed by another of the same number, so that each is
/// told of once.
class PollSet {
 public:
  void clear() {
    fds_.clear();
    wake_at_ns_ = std::numeric_limits<int64_t>::max();
  }
  void add(int fd, short events) { fds_.push_back({fd, events, 0}); }
  /// Ends the wait at this time at the latest (monotonic clock).
  void wake_at(int64_t time_ns) {
    if (time_ns < wake_at_ns_) wake_at_ns_ = time_ns;
  }
  void wait(int64_t now_ns) {
    timespec limit = {};
    const bool bounded = wake_at_ns_ != std::numeric_limits<int64_t>::max();
    if (bounded && wake_at_ns_ > now_ns) {
      limit.tv_sec = (wake_at_ns_ - now_ns) / 1'000'000'000;
      limit.tv_nsec = (wake_at_ns_ - now_ns) % 1'000'000'000;
    }
    ready_.clear();
    if (ppoll(fds_.data(), fds_.size(), bounded ? &limit : nullptr, nullptr) <= 0) return;
    for (const pollfd& p : fds_)
      if (p.revents != 0) ready_.insert(p.fd);
  }
  /// What was ready: descriptors may have been closed during the wait.
  void forget() { ready_.clear(); }
  bool take_ready(int fd) const { return ready_.erase(fd) != 0; }

 private:
  std::vector<pollfd> fds_;
  mutable std::unordered_set<int> ready_;  // not yet taken
  int64_t wake_at_ns_ = std::numeric_limits<int64_t>::max();
};

}  // namespace ropewalk::bootstrap

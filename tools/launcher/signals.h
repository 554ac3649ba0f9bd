// The signals a launcher passes on, as a descriptor, for as long as the object lives.
#pragma once

#include <signal.h>
#include <sys/signalfd.h>

#include "base/unique_fd.h"

namespace ropewalk::tools {

/// Takes SIGINT, SIGTERM and SIGHUP (not those ignored, as under nohup) and ignores SIGPIPE
/// and SIGXFSZ, so that such writes fail instead. Puts everything back at the end. Not movable.
class SignalScope {
 public:
  SignalScope() {
    sigset_t taken;
    sigemptyset(&taken);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action;
      sigaction(number, nullptr, &action);
      if (action.sa_handler != SIG_IGN) sigaddset(&taken, number);
    }
    sigprocmask(SIG_BLOCK, &taken, &old_mask_);
    old_pipe_ = signal(SIGPIPE, SIG_IGN);
    old_file_size_ = signal(SIGXFSZ, SIG_IGN);
    old_child_ = signal(SIGCHLD, SIG_DFL);  // where ignored, wait statuses would be lost
    fd_ = UniqueFd(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalScope() {
    signal(SIGCHLD, old_child_);
    signal(SIGXFSZ, old_file_size_);
    signal(SIGPIPE, old_pipe_);
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  int fd() const { return fd_.get(); }
  /// The next signal that came, or 0.
  int next() {
    signalfd_siginfo info;
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  sigset_t old_mask_;
  sighandler_t old_pipe_ = SIG_DFL, old_file_size_ = SIG_DFL, old_child_ = SIG_DFL;
  UniqueFd fd_;
};

}  // namespace ropewalk::tools

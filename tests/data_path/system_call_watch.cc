#include "tests/data_path/system_call_watch.h"

#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <utility>

#include "ropewalk/status.h"
#include "tests/data_path/calls.h"

namespace ropewalk::testing {
namespace {

/// What the child tells its parent, at most once.
struct Report {
  enum class Kind { called, unsupported, threw } kind = Kind::called;
  long number = 0;  // of the system call; or errno
  char text[200] = {};
  Calls calls;
};

int report_fd = -1;

void tell(const Report& report) {
  [[maybe_unused]] const ssize_t written = ::write(report_fd, &report, sizeof(report));
}

void on_forbidden(int, siginfo_t* info, void*) {
  Report report;
  report.number = info->si_syscall;
  report.calls.take();
  tell(report);
  ::_exit(1);
}

/// False, with errno, where the kernel has no filters.
bool forbid_system_calls() {
  struct sigaction action {};
  action.sa_sigaction = on_forbidden;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSYS, &action, nullptr);

  const auto fd = static_cast<uint32_t>(report_fd);
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),  // low half
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, fd, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0;
}

[[noreturn]] void run_child(const std::function<std::function<void()>()>& prepare) {
  Report report;
  report.calls.take();  // the first time loads a library
  report.calls = {};
  try {
    const std::function<void()> body = prepare();
    if (forbid_system_calls()) {
      body();
    } else {
      report.kind = Report::Kind::unsupported;
      report.number = errno;
      tell(report);
    }
  } catch (const std::exception& error) {
    report.kind = Report::Kind::threw;
    std::strncpy(report.text, error.what(), sizeof(report.text) - 1);
    tell(report);
  }
  ::_exit(0);
}

std::string name_of_call(long number) {
#define NAMED(call) \
  { SYS_##call, #call }
  static constexpr std::pair<long, const char*> kNames[] = {
      NAMED(read),
      NAMED(write),
      NAMED(readv),
      NAMED(writev),
      NAMED(openat),
      NAMED(close),
      NAMED(ppoll),
      NAMED(epoll_pwait),
      NAMED(mmap),
      NAMED(munmap),
      NAMED(mprotect),
      NAMED(mremap),
      NAMED(madvise),
      NAMED(brk),
      NAMED(futex),
      NAMED(sched_yield),
      NAMED(clock_nanosleep),
      NAMED(nanosleep),
      NAMED(sendto),
      NAMED(recvfrom),
      NAMED(sendmsg),
      NAMED(recvmsg),
      NAMED(ioctl),
      NAMED(fcntl),
      NAMED(fstat),
      NAMED(getrandom),
      NAMED(getpid),
      NAMED(gettid),
      NAMED(rt_sigprocmask),
      NAMED(clone3),
      NAMED(clone),
      NAMED(eventfd2),
      NAMED(sched_getaffinity),
  };
#undef NAMED
  for (const auto& [known, name] : kNames)
    if (known == number) return name;
  return fmt::format("system call {}", number);
}

}  // namespace

WatchedCalls system_calls_of(const std::function<std::function<void()>()>& prepare) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error(ErrorCode::system, "test", "pipe failed");
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorCode::system, "test", "fork failed");
  if (child == 0) {
    ::close(ends[0]);
    report_fd = ends[1];
    run_child(prepare);
  }
  ::close(ends[1]);
  Report report;
  const bool told = ::read(ends[0], &report, sizeof(report)) == sizeof(report);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!told && WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (!told) return {fmt::format("the child ended with status {:#x}", status), {}};
  if (report.kind == Report::Kind::unsupported)
    return {{}, fmt::format("seccomp filters: {}", std::strerror(static_cast<int>(report.number)))};
  if (report.kind == Report::Kind::threw) return {report.text, {}};
  return {name_of_call(report.number) + " from\n" + report.calls.text(), {}};
}

}  // namespace ropewalk::testing

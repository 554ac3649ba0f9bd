#include "tools/launcher/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "tools/launcher/binding.h"

namespace ropewalk::tools {
namespace {

struct FailedStep {
  int error;
  char step[28];
};

[[noreturn]] void fail_in_child(int report_fd, const char* step) {
  FailedStep failure{errno, {}};
  strncpy(failure.step, step, sizeof failure.step - 1);
  [[maybe_unused]] ssize_t n = ::write(report_fd, &failure, sizeof failure);
  _exit(127);
}

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

[[noreturn]] void become_rank(const RankStart& start, pid_t parent, int out, int err, int report) {
  // A group, for signals, but no session: each session is scheduled as one (sched(7), autogroup),
  // so that ranks of several could not yield to each other.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before prctl

  sigset_t none;
  sigemptyset(&none);
  for (const int number : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP, SIGCHLD})
    signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  const int in = start.stdin_fd >= 0 ? start.stdin_fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0) fail_in_child(report, "open /dev/null");
  if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0) {
    fail_in_child(report, "dup2");
  }
  // All of the agent's descriptors are close-on-exec; this catches what it inherited itself.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int fd : start.inherited_fds) fcntl(fd, F_SETFD, 0);
  if (!start.workdir.empty() && chdir(start.workdir.c_str()) != 0) {
    fail_in_child(report, "enter directory");
  }
  if (start.cpu >= 0) bind_process_to_cpu(start.cpu);

  std::vector<char*> environment = pointers_to(start.environment);
  std::vector<char*> program = pointers_to(start.program);
  environ = environment.data();
  start.descriptor_limit.restore();
  execvp(program[0], program.data());
  fail_in_child(report, "start");
}

RankProcess failed(const char* step) {
  RankProcess process;
  process.error = errno;
  process.failed_step = step;
  return process;
}

}  // namespace

RankProcess start_rank(const RankStart& start) {
  int out[2], err[2], report[2];
  if (pipe2(out, O_CLOEXEC) != 0) return failed("pipe");
  UniqueFd out_read(out[0]), out_write(out[1]);
  if (pipe2(err, O_CLOEXEC) != 0) return failed("pipe");
  UniqueFd err_read(err[0]), err_write(err[1]);
  if (pipe2(report, O_CLOEXEC) != 0) return failed("pipe");
  UniqueFd report_read(report[0]), report_write(report[1]);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return failed("fork");
  if (pid == 0) {
    become_rank(start, parent, out_write.get(), err_write.get(), report_write.get());
  }
  report_write.reset();

  FailedStep failure{};
  ssize_t n;
  do {
    n = ::read(report_read.get(), &failure, sizeof failure);  // ends when exec closes the pipe
  } while (n < 0 && errno == EINTR);
  RankProcess process;
  if (n == static_cast<ssize_t>(sizeof failure)) {
    waitpid(pid, nullptr, 0);
    process.error = failure.error;
    process.failed_step = failure.step;
    return process;
  }
  fcntl(out_read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err_read.get(), F_SETFL, O_NONBLOCK);
  process.pid = pid;
  process.out = std::move(out_read);
  process.err = std::move(err_read);
  return process;
}

}  // namespace ropewalk::tools

#include "tools/launcher/agent_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "ropewalk/status.h"
#include "tools/launcher/agent.h"
#include "tools/launcher/hosts.h"

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kSshInterval{5};

struct Pipes {
  UniqueFd agent_in, launcher_out, launcher_in, agent_out;
};

[[noreturn]] void fail_start(const char* step) {
  throw Error(ErrorCode::system, "start of an agent", fmt::format("{}: {}", step, strerror(errno)),
              "check the limits on processes and files: ulimit -u; ulimit -n");
}

Pipes make_pipes() {
  int down[2], up[2];
  Pipes pipes;
  if (pipe2(down, O_CLOEXEC) != 0) fail_start("pipe");
  pipes.agent_in = UniqueFd(down[0]);
  pipes.launcher_out = UniqueFd(down[1]);
  if (pipe2(up, O_CLOEXEC) != 0) fail_start("pipe");
  pipes.launcher_in = UniqueFd(up[0]);
  pipes.agent_out = UniqueFd(up[1]);
  return pipes;
}

// Above all the launcher's write ends of pipes, so that the agent sees its death.
void close_all_but(std::array<int, 3> kept) {
  std::sort(kept.begin(), kept.end());
  int next = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd < next) continue;
    if (fd > next) close_range(static_cast<unsigned>(next), static_cast<unsigned>(fd) - 1, 0);
    next = fd + 1;
  }
  close_range(static_cast<unsigned>(next), ~0U, 0);
}

[[noreturn]] void become_local_agent(Pipes pipes, int stdin_fd) {
  UniqueFd rank0_stdin;
  if (stdin_fd >= 0) rank0_stdin = UniqueFd(fcntl(stdin_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  pipes.launcher_in.reset();
  pipes.launcher_out.reset();
  close_all_but({pipes.agent_in.get(), pipes.agent_out.get(), rank0_stdin.get()});
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);  // a reader of the launcher's output sees its end when that ends
  _exit(run_agent(std::move(pipes.agent_in), std::move(pipes.agent_out), std::move(rank0_stdin)));
}

struct SshCall {
  std::string host, command;
  std::chrono::milliseconds timeout;
  bool may_speak;
};

[[noreturn]] void become_ssh(const Pipes& pipes, const SshCall& call) {
  setsid();  // a terminal's Ctrl-C must reach the ranks by way of the launcher, not cut the line
  sigset_t none;
  sigemptyset(&none);
  for (const int number : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(pipes.agent_in.get(), STDIN_FILENO);
  dup2(pipes.agent_out.get(), STDOUT_FILENO);
  if (!call.may_speak) dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
  const std::string count = fmt::format(
      "ServerAliveCountMax={}",
      std::max<int64_t>(1, (call.timeout + kSshInterval - milliseconds(1)) / kSshInterval));
  const std::string interval = fmt::format("ServerAliveInterval={}", kSshInterval.count());
  execlp("ssh", "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", interval.c_str(),
         "-o", count.c_str(), call.host.c_str(), "--", call.command.c_str(), nullptr);
  constexpr std::string_view kText =
      "ropewalk run: cannot start ssh; install it: apt-get install openssh-client\n";
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, kText.data(), kText.size());
  _exit(127);
}

}  // namespace

AgentLink start_local_agent(int stdin_fd, const DescriptorLimit& own_limit) {
  Pipes pipes = make_pipes();
  const pid_t pid = fork();
  if (pid < 0) fail_start("fork");
  if (pid == 0) {
    own_limit.restore();
    become_local_agent(std::move(pipes), stdin_fd);
  }
  AgentLink link{pid, FrameChannel(std::move(pipes.launcher_in), std::move(pipes.launcher_out))};
  link.channel.expect_greeting();
  return link;
}

AgentLink start_remote_agent(const std::string& host, const std::string& ropewalk,
                             milliseconds timeout, bool may_speak,
                             const DescriptorLimit& own_limit) {
  Pipes pipes = make_pipes();
  const SshCall call{host, fmt::format("exec {} run-agent", shell_quote(ropewalk)), timeout,
                     may_speak};
  const pid_t pid = fork();
  if (pid < 0) fail_start("fork");
  if (pid == 0) {
    own_limit.restore();
    become_ssh(pipes, call);
  }
  AgentLink link{pid, FrameChannel(std::move(pipes.launcher_in), std::move(pipes.launcher_out))};
  link.channel.expect_greeting();
  return link;
}

}  // namespace ropewalk::tools

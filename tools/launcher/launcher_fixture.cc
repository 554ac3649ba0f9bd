#include "tools/launcher/launcher_fixture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "tools/command/cli.h"
#include "tools/launcher/launcher.h"
#include "tools/launcher/processes.h"

namespace ropewalk::tools {
namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void redirect(const std::string& path, int flags, int to) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  dup2(fd, to);
}

}  // namespace

LauncherTest::LauncherTest() {
  std::string name = testing::TempDir() + "/launcher_XXXXXX";
  directory_ = mkdtemp(name.data());
}

LauncherTest::~LauncherTest() {
  std::filesystem::remove_all(directory_);
}

pid_t LauncherTest::start(const std::vector<std::string>& arguments, const std::string& input) {
  std::ofstream(path("stdin")) << input;
  const pid_t pid = fork();
  if (pid != 0) return pid;
  redirect(path("stdin"), O_RDONLY, STDIN_FILENO);
  redirect(path("stdout"), O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  if (stdout_fd_ >= 0) dup2(stdout_fd_, STDOUT_FILENO);
  redirect(path("stderr"), O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  for (std::string& entry : environment_) putenv(entry.data());
  const std::string self = own_path();
  const std::string script = before_ + "; exec \"$0\" \"$@\"";
  std::vector<const char*> words{"sh", "-c", script.c_str(), self.c_str(), "run"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  execvp(words[0], const_cast<char**>(words.data()));
  _exit(125);
}

Outcome LauncherTest::wait(pid_t pid) {
  Outcome outcome;
  int wait_status = 0;
  if (!wait_for(pid, std::chrono::seconds(30), wait_status)) {
    ADD_FAILURE() << "the launcher hangs; it has said: " << read("stderr");
    kill(pid, SIGKILL);
    waitpid(pid, &wait_status, 0);
  }
  outcome.status = exit_status_of(wait_status);
  outcome.out = read("stdout");
  outcome.err = read("stderr");
  return outcome;
}

Outcome LauncherTest::run(const std::vector<std::string>& arguments, const std::string& input) {
  return wait(start(arguments, input));
}

Outcome LauncherTest::run_script(std::vector<std::string> flags, const std::string& script,
                                 const std::string& input) {
  flags.insert(flags.end(), {"--", "sh", "-c", script});
  return run(flags, input);
}

std::string LauncherTest::read(const std::string& name) const {
  return contents_of(path(name));
}

std::vector<pid_t> LauncherTest::pids_in(const std::string& name, size_t lines) {
  std::vector<pid_t> pids;
  const bool complete = eventually([&] {
    pids.clear();
    std::istringstream text(read(name));
    for (std::string line; std::getline(text, line);) pids.push_back(std::stoi(line));
    return pids.size() == lines && read(name).ends_with('\n');
  });
  EXPECT_TRUE(complete) << "only " << pids.size() << " of " << lines << " lines in " << name;
  return pids;
}

HostsTest::HostsTest() {
  // Options, host, "--", command: as ssh takes them. A login shell prints a greeting first.
  make_ssh(
      "host=; while [ \"$1\" != -- ]; do host=$1; shift; done; shift\n"
      "cd " +
      path(".") +
      "\n"
      "echo \"$host $*\" >>calls\n"
      "[ ! -e down.$host ] || { echo No route to host >&2; exit 255; }\n"
      "echo $$ >>ssh_pids; echo $$ >ssh_pid.$host\n"
      "echo 'Welcome!'\n"
      "unset SSH_CONNECTION; exec sh -c \"cd /; HOSTNAME_SEEN=$host; "
      "export HOSTNAME_SEEN; $1\"\n");
  environment_ = {"PATH=" + path("bin") + ":" + getenv("PATH")};
}

void HostsTest::make_ssh(const std::string& body) {
  mkdir(path("bin").c_str(), 0700);
  std::ofstream(path("bin/ssh")) << "#!/bin/sh\n" << body;
  chmod(path("bin/ssh").c_str(), 0700);
}

void HostsTest::set_reachable(const std::string& host, bool is_reachable) {
  if (is_reachable)
    std::filesystem::remove(path("down." + host));
  else
    std::ofstream(path("down." + host)) << "";
}

pid_t HostsTest::agent_on(const std::string& host) {
  return pids_in("ssh_pid." + host, 1).at(0);
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool has_ended(pid_t pid) {
  const std::string stat = contents_of(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.substr(name_end, 3) == ") Z";
}

pid_t agent_of(pid_t launcher) {
  FILE* list = popen(fmt::format("ps -o pid= --ppid {}", launcher).c_str(), "r");
  int pid = 0;
  EXPECT_EQ(fscanf(list, "%d", &pid), 1);
  pclose(list);
  return pid;
}

}  // namespace ropewalk::tools

int main(int argc, char** argv) {
  if (argc > 1 && strncmp(argv[1], "run", 3) == 0) {
    return ropewalk::tools::run_cli(argc, argv, {ropewalk::tools::add_run_command});
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

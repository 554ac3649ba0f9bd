#include "tools/launcher/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

namespace ropewalk::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPollInterval{2};

// The parent of `pid`, or 0. /proc/PID/stat: "pid (name) state ppid ..."; the name may hold ')'.
pid_t parent_of(pid_t pid) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(
      fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re"), fclose);
  if (!file) return 0;
  char line[512];
  const size_t n = fread(line, 1, sizeof line - 1, file.get());
  line[n] = 0;
  const char* name_end = strrchr(line, ')');
  int parent = 0;
  if (name_end == nullptr || sscanf(name_end + 1, " %*c %d", &parent) != 1) return 0;
  return parent;
}

}  // namespace

std::string describe_exit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("was killed by signal {} ({}{})", signal, strsignal(signal),
                       WCOREDUMP(wait_status) ? ", core dumped" : "");
  }
  return fmt::format("exited with status {}", WEXITSTATUS(wait_status));
}

int exit_status_of(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

std::string own_path() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error || path.ends_with(" (deleted)") ? "/proc/self/exe" : path;
}

bool stdin_is_ours() {
  // A background job that reads the terminal would be stopped, or steal the shell's input.
  return fcntl(STDIN_FILENO, F_GETFD) >= 0 &&
         (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) == getpgrp());
}

void become_subreaper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (!proc) return {};
  while (const dirent* entry = readdir(proc.get())) {
    const auto pid = static_cast<pid_t>(atoi(entry->d_name));
    if (pid > 0) children.emplace(parent_of(pid), pid);
  }
  std::vector<pid_t> found{getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [begin, end] = children.equal_range(found[i]);
    for (auto child = begin; child != end; ++child) found.push_back(child->second);
  }
  found.erase(found.begin());
  return found;
}

void signal_descendants(int signal) {
  for (const pid_t pid : descendants()) kill(pid, signal);
}

bool reap_all(milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (true) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid < 0 && errno == ECHILD) return true;
    if (pid > 0) continue;
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

bool kill_descendants(milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  // Again and again: a process may fork while we look.
  while (!reap_all(milliseconds(0))) {
    if (steady_clock::now() >= deadline) return false;
    signal_descendants(SIGKILL);
    reap_all(milliseconds(20));
  }
  return true;
}

bool wait_for(pid_t child, milliseconds timeout, int& wait_status) {
  const auto deadline = steady_clock::now() + timeout;
  while (waitpid(child, &wait_status, WNOHANG) != child) {
    if (steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

}  // namespace ropewalk::tools

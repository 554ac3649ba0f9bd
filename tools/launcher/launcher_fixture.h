// Runs `ropewalk run` as a user does. The test program is the launcher as well: called as
// "launcher_test run ..." it does what `ropewalk run ...` does.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ropewalk::tools {

struct Outcome {
  int status = -1;  // 128 + signal where a signal killed the launcher
  std::string out, err;
};

class LauncherTest : public testing::Test {
 protected:
  LauncherTest();
  ~LauncherTest() override;

  /// Runs "launcher_test run ARGUMENTS" to its end, at most 30 s.
  Outcome run(const std::vector<std::string>& arguments, const std::string& input = "");
  /// The same with a shell script as the program.
  Outcome run_script(std::vector<std::string> flags, const std::string& script,
                     const std::string& input = "");

  /// Starts it and returns its pid; `wait` gives what became of it.
  pid_t start(const std::vector<std::string>& arguments, const std::string& input = "");
  Outcome wait(pid_t pid);

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string read(const std::string& name) const;
  /// Waits until the file has `lines` lines; the numbers in it.
  std::vector<pid_t> pids_in(const std::string& name, size_t lines);
  /// Variables for the launcher, "NAME=value".
  std::vector<std::string> environment_;
  /// What a shell does before it becomes the launcher: "ulimit -n 64", "exec >&-".
  std::string before_ = ":";
  /// Where >= 0, the launcher's standard output; else a file.
  int stdout_fd_ = -1;

 private:
  std::string directory_;
};

/// With hosts: `ssh` is a script that notes how it was called and runs the command here.
class HostsTest : public LauncherTest {
 protected:
  HostsTest();

  void make_ssh(const std::string& body);
  /// Whether ssh finds the host from now on.
  void set_reachable(const std::string& host, bool is_reachable);
  /// What serves it: as its last ssh, and its agent.
  pid_t agent_on(const std::string& host);
};

/// Polls until `condition` holds; false after `timeout`.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds timeout = std::chrono::seconds(10));
/// No such process, or only its zombie.
bool has_ended(pid_t pid);
/// Of a launcher: its only child.
pid_t agent_of(pid_t launcher);

}  // namespace ropewalk::tools

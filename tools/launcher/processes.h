// Child processes, and theirs: how they ended, and ending them all.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace ropewalk::tools {

/// "exited with status 3", "was killed by signal 9 (Killed)".
std::string describe_exit(int wait_status);
/// What a shell would report: the status, or 128 + the signal.
int exit_status_of(int wait_status);

/// The path of the running program, to start it again.
std::string own_path();
/// Whether standard input is open and this process's to read.
bool stdin_is_ours();

/// Makes this process the parent of its descendants' orphans, so that none escapes.
void become_subreaper();

/// SIGKILL works at once, except on a stuck device.
inline constexpr std::chrono::milliseconds kKillTimeout{5000};

/// Children, their children, and so on, of this process, as /proc has them now.
std::vector<pid_t> descendants();
/// Sends `signal` to every descendant.
void signal_descendants(int signal);
/// Reaps until this process has no child left, at most for `timeout`. True: none is left.
bool reap_all(std::chrono::milliseconds timeout);
/// Ends every descendant with SIGKILL and reaps it. True: none is left. Call `become_subreaper`
/// first, or grandchildren may be missed.
bool kill_descendants(std::chrono::milliseconds timeout);

/// Waits for `child` at most `timeout`; fills `wait_status` and returns true when it has ended.
bool wait_for(pid_t child, std::chrono::milliseconds timeout, int& wait_status);

}  // namespace ropewalk::tools

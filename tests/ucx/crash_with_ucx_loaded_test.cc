// A crash of a program that had loaded UCX printed UCX's backtrace instead of being the program's.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "transports/ucx/resources.h"

namespace ropewalk::testing {
namespace {

/// What a child prints that loads UCX and then crashes.
std::string last_words(int& wait_status) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) signal(number, SIG_DFL);
    if (ucx::find_resources().empty()) _exit(1);
    raise(SIGSEGV);
    _exit(2);
  }
  close(ends[1]);
  std::string text(1 << 16, '\0');
  size_t length = 0;
  for (ssize_t n; (n = read(ends[0], text.data() + length, text.size() - length)) > 0;)
    length += static_cast<size_t>(n);
  close(ends[0]);
  waitpid(child, &wait_status, 0);
  text.resize(length);
  return text;
}

TEST(CrashWithUcxLoaded, IsTheProgramsOwn) {
  int wait_status = 0;
  EXPECT_EQ(last_words(wait_status), "");
  EXPECT_TRUE(WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSEGV) << wait_status;
}

}  // namespace
}  // namespace ropewalk::testing

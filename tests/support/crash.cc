// A test program that crashes prints where: a crash that comes once in a hundred runs, on a machine
// that is gone, leaves nothing else.
#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "tests/support/sanitized.h"

namespace {

std::array<void*, 64> frames;
std::array<char, 64 << 10> stack;

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

/// The program's own addresses are offsets in its file: addr2line -Cfe PROGRAM OFFSET...
void print_frames(int number, siginfo_t* info, void*) {
  say(number == SIGBUS ? "crashed: SIGBUS, at address:\n" : "crashed: SIGSEGV, at address:\n");
  void* address = info->si_addr;
  ::backtrace_symbols_fd(&address, 1, STDERR_FILENO);
  say("called from:\n");
  ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
  ::raise(number);  // SA_RESETHAND: ends the program
}

[[maybe_unused]] const bool installed = [] {
  if (ropewalk::kIsSanitized) return false;  // sanitizers have handlers, which say more
  ::backtrace(frames.data(), 1);             // loads what it needs now, not in the handler
  const stack_t own{stack.data(), 0, stack.size()};
  ::sigaltstack(&own, nullptr);  // of this thread; others use their own stack
  struct sigaction action {};
  action.sa_sigaction = print_frames;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGSEGV, &action, nullptr);
  ::sigaction(SIGBUS, &action, nullptr);
  return true;
}();

}  // namespace

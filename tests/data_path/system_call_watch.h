// Finds the first system call that a piece of code makes: the code runs in a child process under a
// seccomp filter.
#pragma once

#include <functional>
#include <string>

#include "tests/data_path/watchable.h"

namespace ropewalk::testing {

struct WatchedCalls {
  std::string found;    // the first system call and where it came from; empty: none was made
  std::string skipped;  // why the kernel cannot say; empty: it can
};

/// Forks. The child calls `prepare`, and then what that returns, on the same thread, with every
/// system call forbidden to this thread but clock_gettime, which the kernel's vDSO answers where it
/// can. Nothing is destroyed in the child. Fork while this is the only thread.
WatchedCalls system_calls_of(const std::function<std::function<void()>()>& prepare);

}  // namespace ropewalk::testing

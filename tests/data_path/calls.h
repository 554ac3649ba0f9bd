// Where a program is: the calls on the stack, taken without allocating.
#pragma once

#include <execinfo.h>

#include <cstdlib>
#include <string>

namespace ropewalk::testing {

/// Plain bytes, so that a child process can send it to its parent, whose code lies at the same
/// addresses.
struct Calls {
  void* at[24] = {};
  int count = 0;

  /// The first time loads a library.
  void take() { count = ::backtrace(at, static_cast<int>(std::size(at))); }

  std::string text() const {
    std::string text;
    char** lines = ::backtrace_symbols(at, count);
    for (int i = 0; lines != nullptr && i < count; ++i) text += std::string("  ") + lines[i] + "\n";
    std::free(lines);
    return text;
  }
};

}  // namespace ropewalk::testing

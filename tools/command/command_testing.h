// For tests that run the `ropewalk` program.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace ropewalk::tools::shell {

inline std::string program;  // its path, set by main

struct Outcome {
  int status;
  std::string out;  // and standard error, where the command line says 2>&1
};

/// By the shell.
inline Outcome run(const std::string& arguments) {
  FILE* pipe = popen((program + " " + arguments).c_str(), "r");
  Outcome outcome{-1, {}};
  char bytes[4096];
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, pipe)) > 0;) outcome.out.append(bytes, n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

}  // namespace ropewalk::tools::shell

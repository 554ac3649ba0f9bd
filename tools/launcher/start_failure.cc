#include "tools/launcher/start_failure.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tools/launcher/frames.h"

namespace ropewalk::tools {

StartFailure describe_start_failure(std::string_view payload, std::string_view rank,
                                    std::string_view host, std::string_view program,
                                    std::string_view workdir) {
  const int error = number_in(payload);
  const std::string_view step = payload.substr(payload.find(' ') + 1);
  const bool is_program = step == "start";
  const bool is_directory = step == "enter directory";
  const std::string what = is_program     ? fmt::format("start \"{}\"", program)
                           : is_directory ? fmt::format("enter the directory \"{}\"", workdir)
                                          : fmt::format("start a process ({})", step);
  const char* advice = is_directory  ? "choose one that exists there: --workdir DIR"
                       : !is_program ? "check the limits: ulimit -u; ulimit -n"
                       : error == ENOENT
                           ? "give its path, or put it on PATH (a script: check its first line)"
                           : "see that it is an executable file";
  return {is_program && error == ENOENT ? 127 : 126,
          fmt::format("rank {}: cannot {} on host {}: {}; {}", rank, what, host, strerror(error),
                      advice)};
}

}  // namespace ropewalk::tools

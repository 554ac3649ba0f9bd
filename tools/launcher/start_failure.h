// Why a rank could not be started, for a person.
#pragma once

#include <string>
#include <string_view>

namespace ropewalk::tools {

struct StartFailure {
  int status;  // as of a shell: 127 where the program was not found, else 126
  std::string text;
};

/// `payload` is that of a frame `start_failed` (frames.h); `program` and `workdir` are the job's.
StartFailure describe_start_failure(std::string_view payload, std::string_view rank,
                                    std::string_view host, std::string_view program,
                                    std::string_view workdir);

}  // namespace ropewalk::tools

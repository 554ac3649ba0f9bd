// One log line: "ropewalk[rank 2] warn: text" on standard error. Levels by ROPEWALK_LOG.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace ropewalk {

enum class LogLevel { error, warn, info, debug };
std::optional<LogLevel> log_level_named(std::string_view word);

/// Process-wide threshold; set by Communicator::create.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
/// `rank`: whose line it is; negative, and left out, where that is not known.
void log_line(LogLevel level, int rank, std::string_view text);

template <class... Args>
void log(LogLevel level, int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, rank, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ropewalk

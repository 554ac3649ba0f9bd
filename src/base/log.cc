#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/text.h"

namespace ropewalk {
namespace {
std::atomic<LogLevel> threshold{LogLevel::warn};
constexpr std::string_view kNames[] = {"error", "warn", "info", "debug"};
}  // namespace

std::optional<LogLevel> log_level_named(std::string_view word) {
  const auto found = std::ranges::find(kNames, word);
  if (found == std::end(kNames)) return {};
  return static_cast<LogLevel>(found - kNames);
}

void set_log_level(LogLevel level) {
  threshold.store(level, std::memory_order_relaxed);
}

bool log_enabled(LogLevel level) {
  return level <= threshold.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, int rank, std::string_view text) {
  const std::string line =
      fmt::format("ropewalk{} {}: {}\n", rank < 0 ? "" : fmt::format("[rank {}]", rank),
                  kNames[static_cast<int>(level)], printable(text));
  // One write: lines of several ranks on one terminal do not mix.
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace ropewalk

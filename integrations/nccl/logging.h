// What a person reads: lines through NCCL's own logger (NCCL_DEBUG), with what to do next.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "integrations/nccl/abi.h"
#include "ropewalk/status.h"

namespace ropewalk::nccl {

/// Of the process: NCCL gives every communicator the same. Threads: any.
void set_logger(DebugLogger logger);
void log_text(DebugLevel level, const std::string& text);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  log_text(DebugLevel::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  log_text(DebugLevel::info, fmt::format(format, std::forward<Args>(args)...));
}

Result result_of(ErrorCode code);

/// Calls `body`, which may throw, for a call of NCCL's named `call`.
template <class Body>
Result guarded(const char* call, Body body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    const Failure& failure = error.failure();
    warn("{}: {}{}{}", call, failure.reason, failure.advice.empty() ? "" : "; ", failure.advice);
    return result_of(failure.code);
  } catch (const std::exception& error) {
    warn("{}: {}", call, error.what());
    return Result::system_error;
  }
}

}  // namespace ropewalk::nccl

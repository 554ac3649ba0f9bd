#include "integrations/nccl/logging.h"

#include <atomic>

namespace ropewalk::nccl {
namespace {

std::atomic<DebugLogger> the_logger{nullptr};

}  // namespace

void set_logger(DebugLogger logger) {
  if (logger != nullptr) the_logger = logger;
}

void log_text(DebugLevel level, const std::string& text) {
  const DebugLogger logger = the_logger;
  if (logger == nullptr) return;
  logger(level, level == DebugLevel::warn ? kDebugAll : kDebugInit | kDebugNet, "NET/Ropewalk", 0,
         "NET/Ropewalk: %s", text.c_str());
}

Result result_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok:
      return Result::success;
    case ErrorCode::invalid_argument:
    case ErrorCode::mismatch:
    case ErrorCode::refused:
      return Result::invalid_usage;
    case ErrorCode::timeout:
    case ErrorCode::peer_lost:
    case ErrorCode::protocol:
      return Result::remote_error;
    default:
      return Result::system_error;
  }
}

}  // namespace ropewalk::nccl

#include "ropewalk/status.h"

#include <fmt/format.h>

namespace ropewalk {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok:
      return "ok";
    case ErrorCode::invalid_argument:
      return "invalid argument";
    case ErrorCode::mismatch:
      return "mismatch";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::peer_lost:
      return "peer lost";
    case ErrorCode::refused:
      return "refused";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::exhausted:
      return "exhausted";
    case ErrorCode::protocol:
      return "protocol error";
    case ErrorCode::system:
      return "system error";
    case ErrorCode::aborted:
      return "aborted";
  }
  return "unknown";
}

std::string Failure::text() const {
  std::string line;
  if (rank >= 0) line += fmt::format("rank {}: ", rank);
  line += fmt::format("{}: {} [{}]", operation, reason, name_of(code));
  if (!advice.empty()) line += "; " + advice;
  return line;
}

Error::Error(Failure failure)
    : std::runtime_error(failure.text()),
      failure_(std::make_shared<const Failure>(std::move(failure))) {}

Error::Error(ErrorCode code, std::string operation, std::string reason, std::string advice)
    : Error(Failure{code, std::move(operation), std::move(reason), std::move(advice)}) {}

}  // namespace ropewalk

#include "ropewalk/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "base/text.h"

namespace ropewalk {

namespace {

/// Its texts may come from users, hosts and the network. `peer` and `peers` say the same.
Failure completed(Failure failure) {
  assert(std::ranges::is_sorted(failure.peers));
  if (!failure.peers.empty())
    failure.peer = failure.peers.front();
  else if (failure.peer >= 0)
    failure.peers = {failure.peer};
  for (std::string* text : {&failure.operation, &failure.reason, &failure.advice})
    *text = printable(*text);
  return failure;
}

}  // namespace

std::string_view name_of(ErrorCode code) {
  constexpr std::array<std::string_view, 13> kNames = {
      "ok",      "invalid argument", "mismatch",  "timeout",        "peer lost",
      "refused", "unavailable",      "exhausted", "protocol error", "system error",
      "aborted", "revoked",          "no quorum"};
  static_assert(kNames.size() == static_cast<size_t>(ErrorCode::no_quorum) + 1);
  const auto i = static_cast<size_t>(code);
  return i < kNames.size() ? kNames[i] : "unknown";
}

std::string Failure::text() const {
  std::string line;
  if (rank >= 0) line += fmt::format("rank {}: ", rank);
  line += fmt::format("{}: {} [{}]", operation, reason, name_of(code));
  if (!advice.empty()) line += "; " + advice;
  return line;
}

Error::Error(Failure failure)
    : std::runtime_error(printable(failure.text())),
      failure_(std::make_shared<const Failure>(completed(std::move(failure)))) {}

Error::Error(ErrorCode code, std::string operation, std::string reason, std::string advice)
    : Error(Failure{code, std::move(operation), std::move(reason), std::move(advice)}) {}

}  // namespace ropewalk

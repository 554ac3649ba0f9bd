// The flags of `ropewalk bench put|pingpong|signal`.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk::tools {

enum class P2pKind {
  put,       // one-sided writes with notice: one at a time, then many in flight
  pingpong,  // messages there and back, the same bytes: rank 1 puts what arrived
  signal,    // pure notices there and back
};
constexpr std::string_view name_of(P2pKind kind) {
  return kind == P2pKind::put ? "put" : kind == P2pKind::pingpong ? "pingpong" : "signal";
}

struct P2pOptions {
  P2pKind kind = P2pKind::put;
  int ranks = 0;              // 0: not said
  std::string transport;      // empty: the library's choice
  bool secure = false;        // or as the environment says
  std::vector<size_t> sizes;  // bytes
  bool both = false;          // put: bandwidth of both ways at once
  int iterations = 0;         // 0: as many as fit in a part of a second
  int warmup = 20;
  std::optional<std::chrono::nanoseconds> timeout;
  bool json = false;
};

/// Of one rank: where puts come from and where they land.
inline uint64_t buffer_bytes(const P2pOptions& options) {
  return 2 * uint64_t{*std::max_element(options.sizes.begin(), options.sizes.end())};
}

}  // namespace ropewalk::tools

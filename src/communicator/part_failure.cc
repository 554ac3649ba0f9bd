#include "communicator/part_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <thread>

namespace ropewalk {
namespace {

/// The control tree tells all ranks within milliseconds.
constexpr int kTellsAll_ms = 500;

}  // namespace

Error seen_from_whole(Failure failure, const std::vector<int>& members, const Monitor& whole) {
  // Without ranks: of the whole, whose ranks have other numbers; or of what this rank lacks.
  for (int ms = 0; failure.peers.empty() && whole.failure() == nullptr && ms < kTellsAll_ms; ++ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (whole.failure() != nullptr) return Error(*whole.failure());
  const auto in_whole = [&](int rank) {
    assert(rank < static_cast<int>(members.size()));
    return rank < 0 ? rank : members[static_cast<size_t>(rank)];
  };
  failure.rank = in_whole(failure.rank);
  failure.peer = in_whole(failure.peer);
  std::ranges::transform(failure.peers, failure.peers.begin(), in_whole);
  std::ranges::sort(failure.peers);
  failure.reason = fmt::format("in the part of the ranks {}, where they are numbered from 0: {}",
                               fmt::join(members, ", "), failure.reason);
  return Error(std::move(failure));
}

Failure seen_from_part(Failure failure, const std::vector<int>& members) {
  const auto in_part = [&](int rank) {
    const auto found = std::ranges::find(members, rank);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  };
  failure.rank = in_part(failure.rank);
  failure.peer = in_part(failure.peer);
  std::ranges::transform(failure.peers, failure.peers.begin(), in_part);
  std::erase(failure.peers, -1);
  std::ranges::sort(failure.peers);
  return failure;
}

}  // namespace ropewalk

#include "communicator/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace ropewalk {
namespace {

/// The control tree tells all ranks within milliseconds.
constexpr int kTellsAll_ms = 500;

}  // namespace

std::vector<int> ranks_of(const std::vector<SplitWish>& wishes, int color) {
  const auto wish_of = [&](int rank) { return wishes[static_cast<size_t>(rank)]; };
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(wishes.size()); ++rank)
    if (wish_of(rank).color == color) ranks.push_back(rank);
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return wish_of(rank).key; });
  return ranks;
}

Error seen_from_whole(Failure failure, const std::vector<int>& members, const Monitor& whole) {
  // Without ranks: of the whole, whose ranks have other numbers; or of what this rank lacks.
  for (int ms = 0; failure.peers.empty() && whole.failure() == nullptr && ms < kTellsAll_ms; ++ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (whole.failure() != nullptr) return Error(*whole.failure());
  failure = bootstrap::numbered_as_in_whole(std::move(failure), members);
  failure.reason = fmt::format("in the part of the ranks {}, where they are numbered from 0: {}",
                               fmt::join(members, ", "), failure.reason);
  return Error(std::move(failure));
}

Failure exception_failure(int rank, const std::optional<Failure>& cause) {
  Failure failure{ErrorCode::aborted,
                  "communicator",
                  fmt::format("rank {} left because of an exception", rank),
                  fmt::format("see the output of rank {}", rank),
                  rank,
                  rank};
  if (cause && cause->peer != rank) {
    std::string reason = failure.reason + ", " + cause->reason;
    failure = *cause;
    failure.reason = std::move(reason);
    failure.rank = rank;
  }
  return failure;
}

}  // namespace ropewalk

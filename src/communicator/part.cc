#include "communicator/part.h"

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

std::vector<int> members_of(const std::vector<int32_t>& colors_and_keys, int color) {
  std::vector<int> members;
  for (size_t rank = 0; 2 * rank < colors_and_keys.size(); ++rank)
    if (colors_and_keys[2 * rank] == color) members.push_back(static_cast<int>(rank));
  std::ranges::stable_sort(
      members, {}, [&](int rank) { return colors_and_keys[2 * static_cast<size_t>(rank) + 1]; });
  return members;
}

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

Rendezvous open_rendezvous(const Options& common, bool this_host_only, std::span<char> unique_id) {
  Rendezvous rendezvous(common, this_host_only);
  if (rendezvous.unique_id().size() >= unique_id.size())
    throw Error(ErrorCode::exhausted, "split", "this rank has too many addresses",
                "choose some with ROPEWALK_SOCKET_IFNAME");
  std::ranges::copy(rendezvous.unique_id(), unique_id.begin());
  return rendezvous;
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

#include "communicator/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "bootstrap/auth.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk {
namespace {

/// Holds a unique id with the 16 addresses at most that a record has.
constexpr size_t kUniqueIdBytes = 1024;

struct ColorAndKey {
  int32_t color, key;
};

/// The ranks of `color` in their new order.
std::vector<int> members_of(const std::vector<ColorAndKey>& pairs, int color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < pairs.size(); ++rank)
    if (pairs[rank].color == color) members.push_back(static_cast<int>(rank));
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return pairs[static_cast<size_t>(rank)].key; });
  return members;
}

/// Opens a rendezvous and writes its unique id, which ends with a zero, into `unique_id`.
Rendezvous open_rendezvous(std::span<char> unique_id) {
  Rendezvous rendezvous;
  if (rendezvous.unique_id().size() >= unique_id.size())
    throw Error(ErrorCode::exhausted, "split", "this rank has too many addresses",
                "choose some with ROPEWALK_SOCKET_IFNAME");
  std::ranges::copy(rendezvous.unique_id(), unique_id.begin());
  return rendezvous;
}

}  // namespace

std::unique_ptr<Communicator> split_communicator(
    Communicator& whole, const Options& common, int color, int key,
    const std::function<std::unique_ptr<Communicator>(const Options&)>& join) {
  const auto ranks = static_cast<size_t>(whole.size());
  const ColorAndKey own{color, key};
  std::vector<ColorAndKey> pairs(ranks);
  whole.all_gather(std::span(reinterpret_cast<const int32_t*>(&own), 2),
                   std::span(reinterpret_cast<int32_t*>(pairs.data()), 2 * ranks));
  const std::vector<int> members = members_of(pairs, color);
  const bool leads = color >= 0 && members[0] == whole.rank();

  std::optional<Rendezvous> rendezvous;
  std::optional<Error> failure;
  std::vector<char> unique_id(kUniqueIdBytes), unique_ids(ranks * kUniqueIdBytes);
  if (leads) {
    // The others are told that there is no unique id: they must not wait for one.
    try {
      rendezvous.emplace(open_rendezvous(unique_id));
    } catch (const Error& error) {
      failure = error;
    }
  }
  whole.all_gather(std::span<const char>(unique_id), std::span(unique_ids));
  if (failure) throw Error(*failure);
  if (color < 0) return nullptr;

  const auto size = static_cast<int>(members.size());
  const auto rank = static_cast<int>(std::ranges::find(members, whole.rank()) - members.begin());
  const char* leaders = unique_ids.data() + static_cast<size_t>(members[0]) * kUniqueIdBytes;
  if (*leaders == 0)
    throw Error(ErrorCode::unavailable, "split",
                fmt::format("rank {} could not open a rendezvous", members[0]),
                fmt::format("see the output of rank {}", members[0]));
  Options options = leads ? rendezvous->options(rank, size, common)
                          : Rendezvous::options(leaders, rank, size, common);
  // The unique id has travelled in clear: its key is only a nonce.
  options.key = bootstrap::part_secret(common.key.value_or(""), *options.key);
  return join(options);
}

}  // namespace ropewalk

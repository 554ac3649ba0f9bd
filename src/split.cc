#include "split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "bootstrap/auth.h"
#include "ropewalk/meeting.h"

namespace ropewalk {
namespace {

/// Holds an invitation with the 16 addresses at most that a card has.
constexpr size_t kInvitationBytes = 1024;

struct Choice {
  int32_t color, key;
};

/// The ranks of `color` in their new order.
std::vector<int> members_of(const std::vector<Choice>& choices, int color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < choices.size(); ++rank)
    if (choices[rank].color == color) members.push_back(static_cast<int>(rank));
  std::ranges::stable_sort(members, {},
                           [&](int rank) { return choices[static_cast<size_t>(rank)].key; });
  return members;
}

/// Opens a meeting and writes its invitation, which ends with a zero, into `invitation`.
Meeting invite(std::span<char> invitation) {
  Meeting meeting;
  if (meeting.invitation().size() >= invitation.size())
    throw Error(ErrorCode::exhausted, "split", "this rank has too many addresses",
                "choose some with ROPEWALK_SOCKET_IFNAME");
  std::ranges::copy(meeting.invitation(), invitation.begin());
  return meeting;
}

}  // namespace

std::unique_ptr<Communicator> split_communicator(Communicator& whole, Options common, int color,
                                                 int key) {
  const auto ranks = static_cast<size_t>(whole.size());
  const Choice own{color, key};
  std::vector<Choice> choices(ranks);
  whole.all_gather(std::span(reinterpret_cast<const int32_t*>(&own), 2),
                   std::span(reinterpret_cast<int32_t*>(choices.data()), 2 * ranks));
  const std::vector<int> members = members_of(choices, color);
  const bool leads = color >= 0 && members[0] == whole.rank();

  std::optional<Meeting> meeting;
  std::optional<Error> trouble;
  std::vector<char> invitation(kInvitationBytes), invitations(ranks * kInvitationBytes);
  if (leads) {
    // The others are told that there is no invitation: they must not wait for one.
    try {
      meeting.emplace(invite(invitation));
    } catch (const Error& error) {
      trouble = error;
    }
  }
  whole.all_gather(std::span<const char>(invitation), std::span(invitations));
  if (trouble) throw Error(*trouble);
  if (color < 0) return nullptr;

  const auto size = static_cast<int>(members.size());
  const auto rank = static_cast<int>(std::ranges::find(members, whole.rank()) - members.begin());
  const char* leaders = invitations.data() + static_cast<size_t>(members[0]) * kInvitationBytes;
  if (*leaders == 0)
    throw Error(ErrorCode::unavailable, "split",
                fmt::format("rank {} could not open a meeting", members[0]),
                fmt::format("see the output of rank {}", members[0]));
  Options options = leads ? meeting->options(rank, size) : Meeting::options(leaders, rank, size);
  // The invitation has travelled in clear: its key is but a nonce.
  options.key = bootstrap::part_secret(common.key.value_or(""), *options.key);
  options.transport = common.transport;
  options.timeout = common.timeout;
  options.progress_thread = common.progress_thread;
  options.progress_cpu = common.progress_cpu;
  return Communicator::create(options);
}

}  // namespace ropewalk

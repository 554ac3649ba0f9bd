// Invitation: "ropewalk1 KEY ADDRESS,ADDRESS,..."; KEY is 64 hexadecimal digits, ADDRESS "ip:port".
#include "ropewalk/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "bootstrap/auth.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/knobs.h"
#include "bootstrap/net.h"

namespace ropewalk {
namespace {

constexpr std::string_view kGreeting = "ropewalk1 ";
constexpr size_t kKeyDigits = 64;

/// A loopback address means another machine to each rank, so it is named only where nothing else
/// is.
std::string addresses_of(int listener) {
  std::string choice;
  const auto all =
      bootstrap::advertised_addresses(listener, knobs_from_environment().socket_ifname, choice);
  std::string outward, loopback;
  for (const std::string& text : all) {
    std::string& list = bootstrap::numeric_address(text)->is_loopback() ? loopback : outward;
    list += (list.empty() ? "" : ",") + text;
  }
  if (all.empty())
    throw Error(ErrorCode::unavailable, "meeting", "no network interface is up",
                "ip link set lo up, at least");
  return outward.empty() ? loopback : outward;
}

Options joining(int rank, int size, std::string_view key) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.key = std::string(key);
  return options;
}

std::string_view key_in(std::string_view invitation) {
  return invitation.substr(kGreeting.size(), kKeyDigits);
}

}  // namespace

Meeting::Meeting() {
  bootstrap::start_cryptography();
  bootstrap::UniqueFd listener = bootstrap::listen_everywhere(0);
  invitation_ =
      fmt::format("{}{} {}", kGreeting, bootstrap::random_secret(), addresses_of(listener.get()));
  listener_ = listener.release();
}

Meeting::~Meeting() {
  if (listener_ >= 0) ::close(listener_);
}

Meeting::Meeting(Meeting&& other) noexcept
    : listener_(std::exchange(other.listener_, -1)), invitation_(std::move(other.invitation_)) {}

Options Meeting::options(int rank, int size) const {
  Options options = joining(rank, size, key_in(invitation_));
  options.coordinator_fd = listener_;
  return options;
}

Options Meeting::options(std::string_view invitation, int rank, int size) {
  const std::string_view rest =
      invitation.substr(std::min(invitation.size(), kGreeting.size() + kKeyDigits));
  const bool is_one = invitation.starts_with(kGreeting) && rest.starts_with(' ') &&
                      !bootstrap::parse_endpoints(rest.substr(1)).empty();
  if (!is_one)
    throw Error(ErrorCode::invalid_argument, "meeting",
                fmt::format("\"{}\" is no invitation to a meeting", invitation.substr(0, 16)),
                "give what Meeting::invitation() said on rank 0, whole");
  Options options = joining(rank, size, key_in(invitation));
  options.coordinator = std::string(rest.substr(1));
  return options;
}

}  // namespace ropewalk

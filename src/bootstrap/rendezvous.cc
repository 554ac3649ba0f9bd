// Unique id: "ropewalk1 KEY ADDRESS,ADDRESS,..."; KEY is 64 hexadecimal digits, ADDRESS "ip:port".
#include "ropewalk/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "bootstrap/auth.h"
#include "bootstrap/config.h"
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
      bootstrap::advertised_addresses(listener, config_from_environment().socket_ifname, choice);
  std::string outward, loopback;
  for (const std::string& text : all) {
    std::string& list = bootstrap::numeric_address(text)->is_loopback() ? loopback : outward;
    list += (list.empty() ? "" : ",") + text;
  }
  if (all.empty())
    throw Error(ErrorCode::unavailable, "rendezvous", "no network interface is up",
                "ip link set lo up, at least");
  return outward.empty() ? loopback : outward;
}

}  // namespace

Rendezvous::Rendezvous() {
  bootstrap::start_cryptography();
  UniqueFd listener = bootstrap::listen_everywhere(0);
  unique_id_ =
      fmt::format("{}{} {}", kGreeting, bootstrap::random_secret(), addresses_of(listener.get()));
  listener_ = listener.release();
}

Rendezvous::~Rendezvous() {
  if (listener_ >= 0) ::close(listener_);
}

Rendezvous::Rendezvous(Rendezvous&& other) noexcept
    : listener_(std::exchange(other.listener_, -1)), unique_id_(std::move(other.unique_id_)) {}

Options Rendezvous::options(int rank, int size, Options common) const {
  Options options = Rendezvous::options(unique_id_, rank, size, std::move(common));
  options.coordinator.reset();
  options.coordinator_fd = listener_;
  return options;
}

Options Rendezvous::options(std::string_view unique_id, int rank, int size, Options common) {
  const std::string_view rest =
      unique_id.substr(std::min(unique_id.size(), kGreeting.size() + kKeyDigits));
  const bool is_one = unique_id.starts_with(kGreeting) && rest.starts_with(' ') &&
                      !bootstrap::parse_endpoints(rest.substr(1)).empty();
  if (!is_one)
    throw Error(ErrorCode::invalid_argument, "rendezvous",
                fmt::format("\"{}\" is no unique id", unique_id.substr(0, 16)),
                "give what Rendezvous::unique_id() said on rank 0, whole");
  common.rank = rank;
  common.size = size;
  common.key = std::string(unique_id.substr(kGreeting.size(), kKeyDigits));
  common.coordinator = std::string(rest.substr(1));
  return common;
}

}  // namespace ropewalk

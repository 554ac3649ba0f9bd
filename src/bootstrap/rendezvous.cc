// Unique id: "ropewalk1 KEY ADDRESS,ADDRESS,..."; KEY is 64 hexadecimal digits, ADDRESS "ip:port".
// "ropewalk2 NONCE ADDRESS,..." where the ranks have a key of their own.
#include "ropewalk/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "bootstrap/auth.h"
#include "bootstrap/config.h"
#include "bootstrap/net.h"

namespace ropewalk {
namespace {

constexpr std::string_view kWithKey = "ropewalk1 ", kWithNonce = "ropewalk2 ";
constexpr size_t kKeyDigits = 64;

/// What the ranks have in common before they meet.
Secret key_of(const Options& common) {
  return common.key ? Secret(*common.key) : take_job_key();
}

/// The socket at which rank 0 waits for the others: at the first address of the interface that was
/// asked for; everywhere, where it was none, or several.
UniqueFd open_listener(bool this_host_only) {
  if (this_host_only) return bootstrap::listen_at(*bootstrap::loopback_literal({"127.0.0.1", 0}));
  const std::string prefix = config_from_environment().socket_ifname;
  const auto addresses = bootstrap::local_addresses(prefix);
  const bool is_one = std::ranges::all_of(addresses, [&](const bootstrap::LocalAddress& address) {
    return address.interface == addresses[0].interface;
  });
  return prefix.empty() || !is_one ? bootstrap::listen_everywhere(0)
                                   : bootstrap::listen_at(addresses[0].address);
}

/// A loopback address means another machine to each rank, so it is named only where nothing else
/// is.
std::string addresses_of(const UniqueFd& listener) {
  std::string choice;
  const auto all = bootstrap::advertised_addresses(std::span(&listener, 1),
                                                   config_from_environment().socket_ifname, choice);
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

Rendezvous::Rendezvous(const Options& common, bool this_host_only) {
  bootstrap::start_cryptography();
  UniqueFd listener = open_listener(this_host_only);
  unique_id_ = fmt::format("{}{} {}", key_of(common).empty() ? kWithKey : kWithNonce,
                           bootstrap::random_secret(), addresses_of(listener));
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
      unique_id.substr(std::min(unique_id.size(), kWithKey.size() + kKeyDigits));
  const bool has_nonce = unique_id.starts_with(kWithNonce);
  const bool is_one = (has_nonce || unique_id.starts_with(kWithKey)) && rest.starts_with(' ') &&
                      !bootstrap::parse_endpoints(rest.substr(1)).empty();
  if (!is_one)
    throw Error(ErrorCode::invalid_argument, "rendezvous",
                fmt::format("\"{}\" is no unique id", unique_id.substr(0, 16)),
                "give what Rendezvous::unique_id() said on rank 0, whole");
  if (common.elastic.value_or(config_from_environment().elastic))
    throw Error(
        Failure{ErrorCode::invalid_argument, "elastic",
                "ROPEWALK_ELASTIC=1, or Options::elastic, and a unique id: what joins while "
                "the job runs could not know where that is",
                kElasticAdvice, rank, -1});
  const Secret key = key_of(common);
  if (has_nonce == key.empty())
    throw Error(ErrorCode::invalid_argument, "rendezvous",
                key.empty() ? "rank 0 has a ROPEWALK_JOB_KEY, and this rank has none"
                            : "this rank has a ROPEWALK_JOB_KEY, and rank 0 has none",
                kKeyAdvice);
  const auto is_loopback = [](const bootstrap::Endpoint& at) {
    return bootstrap::loopback_literal(at).has_value();
  };
  const bool is_local =
      std::ranges::all_of(bootstrap::parse_endpoints(rest.substr(1)), is_loopback);
  if (has_nonce && !key.is_strong() && !is_local) refuse_weak_key(rank);
  common.rank = rank;
  common.size = size;
  common.key = std::string(unique_id.substr(kWithKey.size(), kKeyDigits));
  if (has_nonce) common.key = bootstrap::part_secret(key.text(), *common.key);
  common.coordinator = std::string(rest.substr(1));
  return common;
}

}  // namespace ropewalk

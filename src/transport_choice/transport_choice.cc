#include "transport_choice/transport_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <set>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr const char* kSeeDoctor = "`ropewalk doctor` on that host says more";

[[noreturn]] void refuse(std::string reason, std::string advice) {
  throw Error(ErrorCode::unavailable, "communicator", std::move(reason), std::move(advice));
}

Obstacle obstacle_of(const TransportProvider& provider, const PeerTable& ranks, bool asked,
                     bool secure = false) {
  if (secure && !is_secure(provider))
    return {fmt::format("ROPEWALK_SECURE=1, and what {} sends cannot be sealed", provider.name)};
  return provider.find_obstacle == nullptr ? Obstacle() : provider.find_obstacle(ranks, asked);
}

const TransportProvider* provider_named(std::string_view name) {
  const auto& all = transport_providers();
  const auto found = std::ranges::find(all, name, &TransportProvider::name);
  return found == all.end() ? nullptr : *found;
}

/// Of those that could join all ranks the first that does, and what kept the job from the very
/// first.
struct NetworkChoice {
  const TransportProvider* provider = nullptr;
  const TransportProvider* passed_over = nullptr;
  Obstacle obstacle = {};

  std::string reason() const {
    if (passed_over == nullptr) return std::string(provider->why_chosen);
    if (provider->why_chosen.empty()) return obstacle.reason;
    return fmt::format("{}, {} does not: {}", provider->why_chosen, passed_over->name,
                       obstacle.reason);
  }
};

NetworkChoice best_network(const PeerTable& ranks, bool secure) {
  NetworkChoice network;
  for (const TransportProvider* provider : transport_providers()) {
    if (provider->maps) continue;
    Obstacle obstacle = obstacle_of(*provider, ranks, false, secure);
    if (obstacle.reason.empty()) {
      network.provider = provider;
      break;
    }
    if (network.passed_over != nullptr) continue;
    network.passed_over = provider;
    network.obstacle = std::move(obstacle);
  }
  assert(network.provider != nullptr);  // TCP meets no obstacle
  return network;
}

void check_wish(const TransportProvider& asked, bool several_hosts, const PeerTable& ranks,
                bool secure) {
  if (secure && !is_secure(asked))
    refuse(
        fmt::format("{} was asked for, but {}", asked.name,
                    obstacle_of(asked, ranks, true, true).reason),
        "use ROPEWALK_TRANSPORT=tcp, or auto; or unset ROPEWALK_SECURE, where the network is safe");
  const Obstacle obstacle = obstacle_of(asked, ranks, true);
  if (!obstacle.reason.empty())
    refuse(fmt::format("{} was asked for, but {}", asked.name, obstacle.reason), kSeeDoctor);
  if (asked.maps && several_hosts)
    refuse("shared memory was asked for, but the ranks are on several hosts",
           "use ROPEWALK_TRANSPORT=auto, which takes another transport between hosts");
}

const TransportProvider* choose_within(const TransportProvider* asked, const PeerTable& ranks) {
  const auto& all = transport_providers();
  if (asked == nullptr) return *std::ranges::find(all, true, &TransportProvider::maps);
  const TransportProvider* within = asked->within_host;
  const bool can = within != nullptr && obstacle_of(*within, ranks, true).reason.empty();
  return can ? within : asked;
}

void check_required(std::string_view require, const TransportChoice& choice,
                    const TransportProvider* asked, const NetworkChoice& network,
                    const PeerTable& ranks) {
  const TransportProvider* used = choice.network();
  if (used == nullptr) return;
  if (require == "rdma" && used->is_rdma) {
    const Obstacle obstacle = obstacle_of(*used, ranks, false);
    if (!obstacle.reason.empty())
      refuse("ROPEWALK_REQUIRE=rdma, but " + obstacle.reason, kSeeDoctor);
  } else if (require == "rdma") {
    if (asked != nullptr)
      refuse(fmt::format("ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT={}", asked->name),
             "unset one of the two");
    refuse("ROPEWALK_REQUIRE=rdma, but " + network.obstacle.reason, kSeeDoctor);
  }
  if (require == "shm")
    refuse(fmt::format("ROPEWALK_REQUIRE=shm, but the job would take {}", text_of(choice)),
           asked == nullptr ? "start all ranks on one host" : "unset ROPEWALK_TRANSPORT");
}

}  // namespace

std::string text_of(const TransportChoice& choice) {
  const TransportProvider* all = choice.between == nullptr ? choice.within : choice.between;
  if (all == nullptr) return "none: the job has one rank";
  if (choice.within == all || choice.within == nullptr)
    return fmt::format("{} between all ranks", all->name);
  return fmt::format("{} within hosts, {} between them", choice.within->name, choice.between->name);
}

std::string names_of(const TransportChoice& choice) {
  std::string names;
  if (choice.maps()) names = choice.within->name;
  if (const TransportProvider* network = choice.network())
    names += (names.empty() ? "" : "+") + std::string(network->name);
  return names.empty() ? "self" : names;
}

TransportChoice choose_transports(std::string_view wish, std::string_view require,
                                  const PeerTable& ranks, bool secure, int tcp_streams) {
  TransportChoice choice;
  if (ranks.size() < 2) return choice;
  std::set<std::string_view> hosts;
  for (const PeerRecord& rank : ranks) hosts.insert(rank.host_id);
  const bool several_hosts = hosts.size() > 1;
  const TransportProvider* asked = wish == "auto" ? nullptr : provider_named(wish);
  assert(asked != nullptr || wish == "auto");  // Config has no other
  if (asked != nullptr) check_wish(*asked, several_hosts, ranks, secure);

  const NetworkChoice network =
      asked == nullptr ? best_network(ranks, secure) : NetworkChoice{asked};
  if (hosts.size() < ranks.size()) choice.within = choose_within(asked, ranks);
  if (several_hosts) choice.between = network.provider;
  if (several_hosts && network.provider->find_rate != nullptr)
    choice.between_bytes_per_s = network.provider->find_rate(ranks);
  if (const TransportProvider* used = choice.network();
      used != nullptr && used->find_spread_bytes_min != nullptr)
    choice.spread_bytes_min = used->find_spread_bytes_min(ranks, tcp_streams);
  if (asked != nullptr)
    choice.reason = fmt::format("{} was asked for", wish);
  else
    choice.reason = several_hosts ? network.reason() : "all ranks are on one host";
  choice.is_fallback =
      asked == nullptr && several_hosts && !network.provider->is_rdma && network.obstacle.some_can;
  check_required(require, choice, asked, network, ranks);
  return choice;
}

TransportChoice choice_of_part(TransportChoice choice, const std::vector<int>& hosts) {
  const size_t different = std::set(hosts.begin(), hosts.end()).size();
  if (different == hosts.size()) choice.within = nullptr;
  if (different == 1) choice.between = nullptr;
  return choice;
}

}  // namespace ropewalk

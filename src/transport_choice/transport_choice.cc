#include "transport_choice/transport_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using verbs::LinkLayer;
using verbs::PortInfo;

[[noreturn]] void refuse(std::string reason, std::string advice) {
  throw Error(ErrorCode::unavailable, "communicator", std::move(reason), std::move(advice));
}

bool has_layer(const RankTransports& rank, LinkLayer layer) {
  return std::any_of(rank.info.ports.begin(), rank.info.ports.end(),
                     [layer](const PortInfo& port) { return port.link_layer == layer; });
}

/// What keeps the job from RDMA.
struct Obstacle {
  std::string reason;     // empty: nothing
  bool some_can = false;  // though some ranks have ports
};

std::string name_of_rank(size_t rank, const RankTransports& report) {
  return fmt::format("rank {} (host {})", rank, report.host_name);
}

std::string others_text(size_t others) {
  if (others == 0) return {};
  return fmt::format("; {} other rank{} too can use no RDMA port", others, others == 1 ? "" : "s");
}

Obstacle find_obstacle(const std::vector<RankTransports>& ranks) {
  const auto lacks = [](const RankTransports& rank) { return rank.info.ports.empty(); };
  const auto first = std::find_if(ranks.begin(), ranks.end(), lacks);
  if (first != ranks.end()) {
    const auto count = static_cast<size_t>(std::count_if(ranks.begin(), ranks.end(), lacks));
    const std::string& why = first->info.no_ports;
    return {
        fmt::format("{}: {}{}", name_of_rank(static_cast<size_t>(first - ranks.begin()), *first),
                    why.empty() ? "it did not look for RDMA ports" : why, others_text(count - 1)),
        count < ranks.size()};
  }
  for (const LinkLayer layer : {LinkLayer::infiniband, LinkLayer::ethernet})
    if (std::all_of(ranks.begin(), ranks.end(),
                    [layer](const RankTransports& rank) { return has_layer(rank, layer); }))
      return {};
  const auto without = [&](LinkLayer layer) {
    const auto at = std::find_if(ranks.begin(), ranks.end(), [layer](const RankTransports& rank) {
      return !has_layer(rank, layer);
    });
    return name_of_rank(static_cast<size_t>(at - ranks.begin()), *at);
  };
  return {fmt::format("the ranks' ports have no link layer in common: {} has no InfiniBand, {} no "
                      "Ethernet (RoCE)",
                      without(LinkLayer::infiniband), without(LinkLayer::ethernet)),
          true};
}

/// "1.13" of "1.13.1".
std::string_view release_of(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

/// What keeps the job from UCX, and from a fabric through it; empty: nothing.
std::string no_ucx(const std::vector<RankTransports>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string& version = ranks[rank].info.ucx;
    if (version.empty()) return fmt::format("{} has no UCX", name_of_rank(rank, ranks[rank]));
    if (release_of(version) != release_of(ranks[0].info.ucx))
      return fmt::format("{} has UCX {}, {} has {}", name_of_rank(0, ranks[0]), ranks[0].info.ucx,
                         name_of_rank(rank, ranks[rank]), version);
  }
  return {};
}

std::string no_fabric(const std::vector<RankTransports>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (ranks[rank].info.fabrics.empty())
      return fmt::format(
          "{}: UCX reaches no fabric but sockets that UCX_TLS and UCX_NET_DEVICES allow",
          name_of_rank(rank, ranks[rank]));
  return {};
}

/// Whether all ranks that share a host have a mailbox.
bool all_neighbours_share(const std::vector<RankTransports>& ranks) {
  std::map<int, int> ranks_on;
  for (const RankTransports& rank : ranks) ++ranks_on[rank.host];
  return std::all_of(ranks.begin(), ranks.end(), [&ranks_on](const RankTransports& rank) {
    return ranks_on[rank.host] == 1 || !rank.info.mailbox.empty();
  });
}

constexpr const char* kSeeDoctor = "`ropewalk doctor` on that host says more";

void check_wish(std::string_view wish, bool several_hosts, const Obstacle& obstacle,
                const std::vector<RankTransports>& ranks) {
  if (wish == "ucx" && !no_ucx(ranks).empty())
    refuse("ucx was asked for, but " + no_ucx(ranks), kSeeDoctor);
  if (wish == "shm" && several_hosts)
    refuse("shared memory was asked for, but the ranks are on several hosts",
           "use ROPEWALK_TRANSPORT=auto, which takes verbs, UCX or TCP between hosts");
  if (wish == "verbs" && !obstacle.reason.empty())
    refuse("verbs was asked for, but " + obstacle.reason, kSeeDoctor);
}

void check_required(std::string_view wish, std::string_view require, const TransportChoice& choice,
                    const Obstacle& obstacle, const std::vector<RankTransports>& ranks) {
  if (require == "rdma" && choice.uses(TransportKind::ucx) && !no_fabric(ranks).empty())
    refuse("ROPEWALK_REQUIRE=rdma, but " + no_fabric(ranks), kSeeDoctor);
  if (require == "rdma" && choice.uses(TransportKind::tcp)) {
    if (wish == "tcp")
      refuse("ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT=tcp", "unset one of the two");
    refuse("ROPEWALK_REQUIRE=rdma, but " + obstacle.reason, kSeeDoctor);
  }
  if (require == "shm" && (choice.uses(TransportKind::tcp) || choice.uses(TransportKind::verbs) ||
                           choice.uses(TransportKind::ucx)))
    refuse(fmt::format("ROPEWALK_REQUIRE=shm, but the job would take {}", text_of(choice)),
           wish == "auto" ? "start all ranks on one host" : "unset ROPEWALK_TRANSPORT");
}

}  // namespace

std::string_view name_of(TransportKind kind) {
  constexpr std::string_view kNames[] = {"none", "shm", "tcp", "verbs", "ucx", "ucx/shm"};
  return kNames[static_cast<size_t>(kind)];
}

std::string text_of(const TransportChoice& choice) {
  const TransportKind all = choice.between == TransportKind::none ? choice.within : choice.between;
  if (all == TransportKind::none) return "none: the job has one rank";
  if (choice.within == all || choice.within == TransportKind::none)
    return fmt::format("{} between all ranks", name_of(all));
  return fmt::format("{} within hosts, {} between them", name_of(choice.within),
                     name_of(choice.between));
}

TransportChoice choose_transports(std::string_view wish, std::string_view require,
                                  const std::vector<RankTransports>& ranks) {
  TransportChoice choice;
  if (ranks.size() < 2) return choice;
  std::set<int> hosts;
  for (const RankTransports& rank : ranks) hosts.insert(rank.host);
  const bool several_hosts = hosts.size() > 1;
  const bool some_share = hosts.size() < ranks.size();
  const Obstacle obstacle = find_obstacle(ranks);
  check_wish(wish, several_hosts, obstacle, ranks);

  const bool can_rdma = obstacle.reason.empty();
  const bool is_auto = wish == "auto";
  const bool can_ucx = no_ucx(ranks).empty() && no_fabric(ranks).empty();
  TransportKind network = TransportKind::tcp;
  if (wish == "verbs" || (is_auto && can_rdma))
    network = TransportKind::verbs;
  else if (wish == "ucx" || (is_auto && can_ucx))
    network = TransportKind::ucx;
  if (some_share) choice.within = is_auto || wish == "shm" ? TransportKind::shm : network;
  if (choice.within == TransportKind::ucx && all_neighbours_share(ranks))
    choice.within = TransportKind::ucx_shm;
  if (several_hosts) choice.between = network;
  if (!is_auto)
    choice.reason = fmt::format("{} was asked for", wish);
  else if (!several_hosts)
    choice.reason = "all ranks are on one host";
  else if (network == TransportKind::verbs)
    choice.reason = "every rank has a usable RDMA port";
  else
    choice.reason = network == TransportKind::ucx
                        ? "UCX reaches a fabric on every rank, verbs does not: " + obstacle.reason
                        : obstacle.reason;
  choice.is_fallback =
      network == TransportKind::tcp && is_auto && several_hosts && obstacle.some_can;
  check_required(wish, require, choice, obstacle, ranks);
  return choice;
}

}  // namespace ropewalk

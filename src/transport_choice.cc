#include "transport_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using verbs::LinkLayer;
using verbs::PortInfo;

[[noreturn]] void refuse(std::string reason, std::string advice) {
  throw Error(ErrorCode::unavailable, "communicator", std::move(reason), std::move(advice));
}

bool has_layer(const RankReport& rank, LinkLayer layer) {
  return std::any_of(rank.info.ports.begin(), rank.info.ports.end(),
                     [layer](const PortInfo& port) { return port.link_layer == layer; });
}

/// What keeps the job from RDMA.
struct Obstacle {
  std::string reason;     // empty: nothing
  bool some_can = false;  // though some ranks have ports
};

std::string name_of_rank(size_t rank, const RankReport& report) {
  return fmt::format("rank {} (host {})", rank, report.host_name);
}

std::string others_text(size_t others) {
  if (others == 0) return {};
  return fmt::format("; {} other rank{} too can use no RDMA port", others, others == 1 ? "" : "s");
}

Obstacle find_obstacle(const std::vector<RankReport>& ranks) {
  const auto lacks = [](const RankReport& rank) { return rank.info.ports.empty(); };
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
                    [layer](const RankReport& rank) { return has_layer(rank, layer); }))
      return {};
  const auto without = [&](LinkLayer layer) {
    const auto at = std::find_if(ranks.begin(), ranks.end(), [layer](const RankReport& rank) {
      return !has_layer(rank, layer);
    });
    return name_of_rank(static_cast<size_t>(at - ranks.begin()), *at);
  };
  return {fmt::format("the ranks' ports have no link layer in common: {} has no InfiniBand, {} no "
                      "Ethernet (RoCE)",
                      without(LinkLayer::infiniband), without(LinkLayer::ethernet)),
          true};
}

constexpr const char* kSeeDoctor = "`ropewalk doctor` on that host says more";

void check_wish(std::string_view wish, bool several_hosts, const Obstacle& obstacle) {
  if (wish == "shm" && several_hosts)
    refuse("shared memory was asked for, but the ranks are on several hosts",
           "use ROPEWALK_TRANSPORT=auto, which takes verbs or TCP between hosts");
  if (wish == "verbs" && !obstacle.reason.empty())
    refuse("verbs was asked for, but " + obstacle.reason, kSeeDoctor);
}

void check_required(std::string_view wish, std::string_view require, const TransportChoice& choice,
                    const Obstacle& obstacle) {
  if (require == "rdma" && choice.uses(Means::tcp)) {
    if (wish == "tcp")
      refuse("ROPEWALK_REQUIRE=rdma, but ROPEWALK_TRANSPORT=tcp", "unset one of the two");
    refuse("ROPEWALK_REQUIRE=rdma, but " + obstacle.reason, kSeeDoctor);
  }
  if (require == "shm" && (choice.uses(Means::tcp) || choice.uses(Means::verbs)))
    refuse(fmt::format("ROPEWALK_REQUIRE=shm, but the job would take {}", text_of(choice)),
           wish == "auto" ? "start all ranks on one host" : "unset ROPEWALK_TRANSPORT");
}

}  // namespace

std::string_view name_of(Means means) {
  constexpr std::string_view kNames[] = {"none", "shm", "tcp", "verbs"};
  return kNames[static_cast<size_t>(means)];
}

std::string text_of(const TransportChoice& choice) {
  const Means all = choice.between == Means::none ? choice.within : choice.between;
  if (all == Means::none) return "none: the job has one rank";
  if (choice.within == all || choice.within == Means::none)
    return fmt::format("{} between all ranks", name_of(all));
  return fmt::format("{} within hosts, {} between them", name_of(choice.within),
                     name_of(choice.between));
}

TransportChoice choose_transports(std::string_view wish, std::string_view require,
                                  const std::vector<RankReport>& ranks) {
  TransportChoice choice;
  if (ranks.size() < 2) return choice;
  std::set<int> hosts;
  for (const RankReport& rank : ranks) hosts.insert(rank.host);
  const bool several_hosts = hosts.size() > 1;
  const bool some_share = hosts.size() < ranks.size();
  const Obstacle obstacle = find_obstacle(ranks);
  check_wish(wish, several_hosts, obstacle);

  const bool can_rdma = obstacle.reason.empty();
  const bool is_auto = wish == "auto";
  const Means network = wish == "verbs" || (is_auto && can_rdma) ? Means::verbs : Means::tcp;
  if (some_share) choice.within = is_auto || wish == "shm" ? Means::shm : network;
  if (several_hosts) choice.between = network;
  if (!is_auto)
    choice.reason = fmt::format("{} was asked for", wish);
  else if (!several_hosts)
    choice.reason = "all ranks are on one host";
  else
    choice.reason = can_rdma ? "every rank has a usable RDMA port" : obstacle.reason;
  choice.is_fallback = is_auto && several_hosts && obstacle.some_can;
  check_required(wish, require, choice, obstacle);
  return choice;
}

}  // namespace ropewalk

#include "network/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

/// By switch: the first switch that it is joined with.
class JoinedSwitches {
 public:
  explicit JoinedSwitches(const Network& network) : up_(network.switches.size()) {
    std::iota(up_.begin(), up_.end(), size_t{0});
    const auto hosts = network.hosts.size();
    for (const NetworkLink& link : network.links) {
      const auto a = static_cast<size_t>(link.ends[0]), b = static_cast<size_t>(link.ends[1]);
      if (a >= hosts && b >= hosts) up_[find(a - hosts)] = find(b - hosts);
    }
  }
  size_t find(size_t i) {
    while (up_[i] != i) i = up_[i] = up_[up_[i]];
    return i;
  }

 private:
  std::vector<size_t> up_;
};

/// By host: the networks that it has an adapter to, each by one of its switches.
std::vector<std::set<size_t>> networks_of_hosts(const Network& network) {
  JoinedSwitches joined(network);
  std::vector<std::set<size_t>> reached(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int side : {0, 1})
      if (link.ends[side] < network.host_count())
        reached[static_cast<size_t>(link.ends[side])].insert(
            joined.find(static_cast<size_t>(link.ends[1 - side] - network.host_count())));
  return reached;
}

[[noreturn]] void refuse_network(const std::string& why, const std::string& advice) {
  throw Error(ErrorCode::invalid_argument, "network", why, advice);
}

}  // namespace

int Network::ranks() const {
  int count = 0;
  for (const NetworkHost& host : hosts) count += host.ranks;
  return count;
}

std::vector<int> Network::host_of_rank() const {
  std::vector<int> numbers;
  for (int host = 0; host < host_count(); ++host)
    numbers.insert(numbers.end(), static_cast<size_t>(hosts[static_cast<size_t>(host)].ranks),
                   host);
  return numbers;
}

std::vector<int> Network::switch_of_host() const {
  std::vector<int> numbers(hosts.size(), -1);
  for (const NetworkLink& link : links)
    for (const int side : {0, 1}) {
      const int host = link.ends[side];
      if (host < host_count() && numbers[static_cast<size_t>(host)] < 0)
        numbers[static_cast<size_t>(host)] = link.ends[1 - side] - host_count();
    }
  return numbers;
}

int Network::shared_networks() const {
  if (hosts.size() < 2) return 0;
  const std::vector<std::set<size_t>> reached = networks_of_hosts(*this);
  return static_cast<int>(std::ranges::count_if(reached[0], [&](size_t one) {
    return std::ranges::all_of(reached,
                               [one](const auto& of_host) { return of_host.contains(one); });
  }));
}

std::optional<std::pair<int, int>> hosts_apart(const Network& network) {
  if (network.hosts.size() == 1) return {};
  const std::vector<std::set<size_t>> reached = networks_of_hosts(network);
  std::map<std::set<size_t>, int> kinds;  // and a host of each
  for (int host = 0; host < network.host_count(); ++host)
    kinds.try_emplace(reached[static_cast<size_t>(host)], host);
  for (const auto& [a, host] : kinds)
    for (const auto& [b, other] : kinds) {
      const bool meet = std::ranges::any_of(a, [&b = b](size_t one) { return b.contains(one); });
      if (!meet) return std::pair(host, other == host ? int{host == 0} : other);
    }
  return {};
}

void check_network(const Network& network) {
  if (network.hosts.empty()) refuse_network("there are no hosts", "describe one or more");
  int64_t ranks = 0;
  for (const NetworkHost& host : network.hosts) ranks += host.ranks;
  if (ranks > kNetworkRanksMax)
    refuse_network(fmt::format("{} ranks are too many", ranks),
                   fmt::format("describe at most {}", kNetworkRanksMax));
  if (const auto apart = hosts_apart(network))
    refuse_network(fmt::format("there is no way from host {} to host {}",
                               network.name_of(apart->first), network.name_of(apart->second)),
                   "add the link that is missing");
}

Network network_of_hosts(const Network& network, const std::vector<HostPart>& parts) {
  Network some = network;
  some.hosts.clear();
  some.links.clear();
  const auto count = static_cast<int>(parts.size());
  std::vector<int> numbers(network.hosts.size(), -1);  // by node: its new number
  for (const HostPart& part : parts) {
    numbers[static_cast<size_t>(part.host)] = some.host_count();
    some.hosts.push_back({network.hosts[static_cast<size_t>(part.host)].name, part.ranks});
  }
  for (int i = 0; i < std::ssize(network.switches); ++i) numbers.push_back(count + i);
  for (NetworkLink link : network.links) {
    for (int& end : link.ends) end = numbers[static_cast<size_t>(end)];
    if (std::ranges::min(link.ends) >= 0) some.links.push_back(link);
  }
  return some;
}

Network with_faults(const Network& network, uint64_t seed, std::string& told) {
  Network faulty = network;
  std::mt19937_64 draw(seed);
  std::vector<bool> is_limited(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (end < network.host_count() && link.s_per_byte > 0)
        is_limited[static_cast<size_t>(end)] = true;
  std::vector<size_t> limited;
  for (size_t host = 0; host < is_limited.size(); ++host)
    if (is_limited[host]) limited.push_back(host);
  const uint64_t drawn = draw();
  const size_t slow =
      limited.empty() ? drawn % network.hosts.size() : limited[drawn % limited.size()];
  for (NetworkLink& link : faulty.links)
    if (link.ends[0] == static_cast<int>(slow) || link.ends[1] == static_cast<int>(slow))
      link.s_per_byte *= 4;
  told = limited.empty()
             ? "no host's links have a limit, so none is slow"
             : fmt::format("{}'s links have a quarter of their rate", network.hosts[slow].name);
  if (network.hosts.size() < 3) return faulty;
  const size_t dropped = (slow + 1 + draw() % (network.hosts.size() - 1)) % network.hosts.size();
  const int gone = static_cast<int>(dropped);
  told += fmt::format("; {} is gone, with its ranks", network.hosts[dropped].name);
  std::vector<HostPart> left;
  for (int host = 0; host < faulty.host_count(); ++host)
    if (host != gone) left.push_back({host, faulty.hosts[static_cast<size_t>(host)].ranks});
  return network_of_hosts(faulty, left);
}

}  // namespace ropewalk

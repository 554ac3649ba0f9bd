#include "synthesize/fabric.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace ropewalk {
namespace {

constexpr int64_t kRateStepsMax = int64_t{1} << 18;
constexpr int64_t kTimesFastest = 64;

struct WholeRates {
  std::vector<int64_t> rates;  // by link
  double bytes_per_s = 0;      // a rate of 1
};

WholeRates whole_rates(const Network& network) {
  WholeRates whole;
  int64_t divisor = 0, fastest = 0;
  for (const NetworkLink& link : network.links) {
    const int64_t rate = link.s_per_byte > 0 ? std::llround(1 / link.s_per_byte) : 0;
    whole.rates.push_back(rate);
    divisor = std::gcd(divisor, rate);
    fastest = std::max(fastest, rate);
  }
  if (fastest == 0) {
    std::ranges::fill(whole.rates, 1);
    return whole;
  }
  const bool is_rough = fastest / divisor > kRateStepsMax;
  whole.bytes_per_s = is_rough ? static_cast<double>(fastest) / static_cast<double>(kRateStepsMax)
                               : static_cast<double>(divisor);
  const int64_t most = is_rough ? kRateStepsMax : fastest / divisor;
  for (int64_t& rate : whole.rates) {
    if (rate == 0)
      rate = most * kTimesFastest;
    else
      rate = std::max<int64_t>(
          std::llround(std::ceil(static_cast<double>(rate) / whole.bytes_per_s - 1e-6)), 1);
  }
  return whole;
}

using HostKind = std::vector<std::array<double, 3>>;  // switch, seconds a byte, latency; by adapter

}  // namespace

std::vector<int> adapters_used(const Network& network) {
  std::vector<int> count(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (end < network.host_count()) ++count[static_cast<size_t>(end)];
  for (size_t host = 0; host < count.size(); ++host)
    count[host] = std::min(count[host], network.hosts[host].ranks);
  return count;
}

Fabric fabric_of(const Network& network, int alone, bool separate) {
  const int hosts = network.host_count();
  const WholeRates whole = whole_rates(network);
  const std::vector<int> used = adapters_used(network);
  std::vector<HostKind> kinds(network.hosts.size());
  std::vector<int> adapters(network.hosts.size());
  std::vector<bool> is_used(network.links.size(), true);
  for (size_t i = 0; i < network.links.size(); ++i)
    for (const int side : {0, 1}) {
      const NetworkLink& link = network.links[i];
      if (link.ends[side] >= hosts) continue;
      const auto host = static_cast<size_t>(link.ends[side]);
      if (adapters[host]++ >= used[host]) is_used[i] = false;
      kinds[host].push_back(
          {static_cast<double>(link.ends[1 - side]), link.s_per_byte, link.all_latency_s()});
    }
  Fabric fabric;
  fabric.switches = static_cast<int>(network.switches.size());
  fabric.bytes_per_s = whole.bytes_per_s;
  std::map<std::tuple<int, int, HostKind>, int> groups;
  std::vector<int> group_of;
  for (int host = 0; host < hosts; ++host) {
    const auto h = static_cast<size_t>(host);
    const int ranks = network.hosts[h].ranks;
    const int apart = separate || host == alone ? host : -1;
    const auto [found, is_new] = groups.try_emplace({apart, ranks, kinds[h]}, fabric.group_count());
    if (is_new) fabric.groups.push_back({{}, ranks, 0});
    fabric.groups[static_cast<size_t>(found->second)].hosts.push_back(host);
    group_of.push_back(found->second);
  }
  std::map<std::pair<int, int>, int64_t> joined;
  for (size_t i = 0; i < network.links.size(); ++i) {
    if (!is_used[i]) continue;
    std::array<int, 2> ends{};
    for (const size_t side : {size_t{0}, size_t{1}}) {
      const int end = network.links[i].ends[side];
      ends[side] =
          end < hosts ? group_of[static_cast<size_t>(end)] : end - hosts + fabric.group_count();
      if (end >= hosts) continue;
      HostGroup& group = fabric.groups[static_cast<size_t>(ends[side])];
      if (group.hosts[0] == end) group.rate += whole.rates[i];
    }
    joined[std::minmax(ends[0], ends[1])] += whole.rates[i];
  }
  for (const auto& [ends, rate] : joined) fabric.links.push_back({{ends.first, ends.second}, rate});
  return fabric;
}

}  // namespace ropewalk

#include "simulate/plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

/// Of one host: the links of the adapters that its ranks use.
using Adapters = std::vector<const NetworkLink*>;

std::vector<Adapters> adapters_of(const Network& network) {
  std::vector<Adapters> adapters(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends) {
      if (end >= network.host_count()) continue;
      const auto host = static_cast<size_t>(end);
      if (std::ssize(adapters[host]) < network.hosts[host].ranks) adapters[host].push_back(&link);
    }
  return adapters;
}

/// Finite, where it has no limit.
double adapter_rate(const NetworkLink& link) {
  return 1 / std::max(link.s_per_byte, 1e-18);
}

/// Of a stream between hosts: at one adapter, where all hosts have as many; else a host is taken to
/// have one, as fast as all of the slowest host together.
void set_adapters(const Network& network, CostModel& cost) {
  const std::vector<Adapters> adapters = adapters_of(network);
  const size_t count = adapters[0].size();
  const bool even = std::ranges::all_of(
      adapters, [count](const Adapters& of_host) { return of_host.size() == count; });
  double ranks = network.hosts[0].ranks;
  for (size_t host = 0; host < adapters.size(); ++host) {
    double rate = 0;
    for (const NetworkLink* link : adapters[host]) {
      if (even) cost.inter.s_per_byte = std::max(cost.inter.s_per_byte, 1 / adapter_rate(*link));
      rate += adapter_rate(*link);
    }
    if (!even) cost.inter.s_per_byte = std::max(cost.inter.s_per_byte, 1 / rate);
    ranks = std::min<double>(ranks, network.hosts[host].ranks);
  }
  if (even) cost.adapters = static_cast<double>(count);
  // Each rank's CPU handles what passes, where adapters do not.
  cost.inter.s_per_byte =
      std::max(cost.inter.s_per_byte, network.copy_s_per_byte * cost.adapters / ranks);
}

/// Hosts at one switch, where they are worth knowing.
void set_racks(const Network& network, PlanRequest& request) {
  struct Rates {
    double down = 0, up = 0;
  };
  std::map<int, Rates> racks;
  const std::vector<int> rack_of = network.switch_of_host();
  for (const int rack : rack_of) racks.try_emplace(rack);
  for (const NetworkLink& link : network.links) {
    const bool is_uplink = std::ranges::min(link.ends) >= network.host_count();
    for (const int end : link.ends)
      if (const auto rack = racks.find(end - network.host_count()); rack != racks.end())
        (is_uplink ? rack->second.up : rack->second.down) += adapter_rate(link);
  }
  double slowest = 0;
  bool narrow = false;
  for (const auto& [number, rates] : racks) {
    narrow |= rates.up < 0.99 * rates.down;
    slowest = std::max(slowest, 1 / std::max(rates.up, 1e-18));
  }
  if (racks.size() < 2 || !narrow) return;
  request.cost.racks_s_per_byte = slowest;
  for (const int host : request.hosts) request.racks.push_back(rack_of[static_cast<size_t>(host)]);
}

}  // namespace

PlanRequest request_on(const Network& network, Collective collective, int root, size_t bytes) {
  PlanRequest request;
  request.collective = collective;
  request.bytes = bytes;
  request.ranks = network.ranks();
  request.hosts = network.host_of_rank();
  request.root = root;
  request.described = true;
  request.mapped = network.hosts.size() == 1;
  request.spreads = network.shared_networks() > 1;
  request.cost.intra = network.within;
  request.cost.inter = network.between;
  request.cost.inter.latency_s += network.receive_s;
  request.cost.reduce_s_per_byte = network.add_s_per_byte;
  if (network.hosts.size() > 1) {
    set_adapters(network, request.cost);
    set_racks(network, request);
  }
  return request;
}

bool is_uniform(const Network& network) {
  if (network.hosts.size() == 1) return true;
  const int center = network.switch_of_host()[0] + network.host_count();
  std::vector<std::vector<std::pair<double, double>>> adapters(network.hosts.size());
  for (const NetworkLink& link : network.links) {
    const int host = std::ranges::min(link.ends);
    if (host >= network.host_count() || std::ranges::max(link.ends) != center) return false;
    adapters[static_cast<size_t>(host)].push_back({link.s_per_byte, link.all_latency_s()});
  }
  for (auto& of_host : adapters) std::ranges::sort(of_host);
  for (size_t host = 1; host < adapters.size(); ++host)
    if (adapters[host] != adapters[0] || network.hosts[host].ranks != network.hosts[0].ranks)
      return false;
  return true;
}

CallToSimulate call_for(const PlanRequest& request, Algorithm algorithm, const SimulationWay& way) {
  PlanRequest forced = request;
  forced.forced = algorithm;
  const PlanDecision decision = choose(forced);
  CallToSimulate call;
  call.key = decision.key(request);
  call.bytes = request.bytes;
  call.slice_bytes = std::max(decision.slice_bytes / 64 * 64, kMappedEagerBytesMax);
  call.eager_bytes_max = eager_bytes_max(request.mapped, request.spreads);
  call.event_by_event = way.event_by_event;
  call.in_list_order = way.in_list_order;
  if (way.in_list_order) call.eager_bytes_max = SIZE_MAX;
  return call;
}

Algorithm choose_on(Routes& routes, const PlanRequest& asked) {
  PlanRequest request = asked;
  request.bytes = std::min(asked.bytes, kPlannedBytesMax);
  const PlanDecision decision = choose(request);
  if (request.ranks > kPlannedRanksMax) return decision.algorithm;
  Algorithm best = decision.algorithm;
  double best_s = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : decision.candidates) {
    if (!candidate.eligible) continue;
    double seconds = 1e-6 * candidate.predicted_us;
    try {
      CallToSimulate call = call_for(request, candidate.algorithm);
      call.messages_max = kPlannedMessagesMax;
      seconds = simulate_call(routes, call).seconds();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted) throw;
    }
    if (seconds < best_s) {
      best_s = seconds;
      best = candidate.algorithm;
    }
  }
  return best;
}

std::vector<SimulatedAlgorithm> simulate_algorithms(
    Routes& routes, const PlanRequest& request, const SimulationWay& way,
    const std::function<void(Algorithm)>& on_begin) {
  std::vector<SimulatedAlgorithm> all;
  for (const Candidate& candidate : choose(request).candidates) {
    if (request.forced != Algorithm::automatic && request.forced != candidate.algorithm) continue;
    if (!candidate.eligible) continue;
    SimulatedAlgorithm& one = all.emplace_back();
    one.planned_s = 1e-6 * candidate.predicted_us;
    const CallToSimulate call = call_for(request, candidate.algorithm, way);
    one.algorithm = candidate.algorithm;
    one.slice_bytes = call.slice_bytes;
    if (on_begin) on_begin(one.algorithm);
    try {
      one.call = simulate_call(routes, call);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted) throw;
      one.why_not = error.failure().reason;
    }
  }
  std::ranges::stable_sort(all, {}, [](const SimulatedAlgorithm& one) {
    return std::pair(!one.why_not.empty(), one.call.ps);
  });
  return all;
}

}  // namespace ropewalk

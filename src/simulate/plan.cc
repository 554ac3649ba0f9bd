#include "simulate/plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

/// By host: seconds a byte through all its adapters.
std::vector<double> host_s_per_byte(const Network& network) {
  std::vector<double> rates(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (end < network.host_count())
        rates[static_cast<size_t>(end)] += 1 / std::max(link.s_per_byte, 1e-18);
  for (double& rate : rates) rate = 1 / std::max(rate, 1e-18);
  return rates;
}

/// Where racks are worth knowing.
void set_racks(const Network& network, const std::vector<double>& hosts, PlanRequest& request) {
  struct Rates {
    double down = 0, up = 0;
  };
  std::map<int, Rates> racks;
  const std::vector<int> rack_of = network.switch_of_host();
  for (size_t i = 0; i < hosts.size(); ++i) racks[rack_of[i]].down += 1 / hosts[i];
  for (const NetworkLink& link : network.links) {
    const bool is_uplink = std::min(link.ends[0], link.ends[1]) >= network.host_count();
    for (const int end : link.ends)
      if (const auto rack = racks.find(end - network.host_count());
          is_uplink && rack != racks.end())
        rack->second.up += 1 / std::max(link.s_per_byte, 1e-18);
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
  request.cost.reduce_s_per_byte = network.add_s_per_byte;
  const std::vector<double> hosts = host_s_per_byte(network);
  if (hosts.size() > 1) {
    request.cost.inter.s_per_byte = std::ranges::max(hosts);
    set_racks(network, hosts, request);
  }
  return request;
}

bool are_hosts_alike(const Network& network) {
  std::vector<std::vector<double>> adapters(network.hosts.size());
  for (const NetworkLink& link : network.links)
    for (const int end : link.ends)
      if (end < network.host_count()) adapters[static_cast<size_t>(end)].push_back(link.s_per_byte);
  for (std::vector<double>& rates : adapters) std::ranges::sort(rates);
  for (size_t i = 1; i < adapters.size(); ++i)
    if (adapters[i] != adapters[0] || network.hosts[i].ranks != network.hosts[0].ranks)
      return false;
  return request_on(network, Collective::all_reduce, 0, 0).racks.empty();
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

Algorithm choose_on(Routes& routes, const PlanRequest& asked,
                    std::vector<SimulatedAlgorithm>* simulated) {
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
      SimulatedCall told = simulate_call(routes, call);
      seconds = told.seconds();
      if (simulated != nullptr && request.bytes == asked.bytes)
        simulated->push_back({candidate.algorithm, call.slice_bytes, 0, std::move(told), {}});
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

std::vector<SimulatedAlgorithm> simulate_algorithms(Routes& routes, const PlanRequest& request,
                                                    const SimulationWay& way,
                                                    const std::vector<SimulatedAlgorithm>& known) {
  std::vector<SimulatedAlgorithm> all;
  for (const Candidate& candidate : choose(request).candidates) {
    if (request.forced != Algorithm::automatic && request.forced != candidate.algorithm) continue;
    if (!candidate.eligible) continue;
    SimulatedAlgorithm& one = all.emplace_back();
    const auto told = std::ranges::find(known, candidate.algorithm, &SimulatedAlgorithm::algorithm);
    if (told != known.end() && way == SimulationWay{}) one = *told;
    one.planned_s = 1e-6 * candidate.predicted_us;
    if (one.call.ranks_run > 0) continue;
    const CallToSimulate call = call_for(request, candidate.algorithm, way);
    one.algorithm = candidate.algorithm;
    one.slice_bytes = call.slice_bytes;
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

#include "job/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine/layout.h"
#include "engine/wire.h"
#include "ropewalk/status.h"
#include "simulate/job_network.h"

namespace ropewalk {
namespace {

/// What ROPEWALK_ALGORITHM forces; automatic where the named one does not implement `collective`,
/// or needs a network that nothing is known of: before it is read, and in parts of the job.
Algorithm forced_by(const Config& config, Collective collective, const Costs& costs) {
  const bool applies = config.algorithm != Algorithm::automatic &&
                       implements(config.algorithm, collective) &&
                       (config.algorithm != Algorithm::synthesized || costs.network);
  return applies ? config.algorithm : Algorithm::automatic;
}

/// Of an all_to_all_v: who hands on parts of others must know how long they are.
Algorithm algorithm_for_counts(const Call& call) {
  if (call.algorithm == Algorithm::automatic || call.algorithm == Algorithm::direct)
    return Algorithm::direct;
  throw Error(ErrorCode::unavailable, std::string(name_of(call.collective)),
              fmt::format("{} does not move parts with counts", name_of(call.algorithm)),
              "use auto or direct, or give no counts");
}

}  // namespace

bool all_mapped(const TransportChoice& transports, const std::vector<int>& hosts) {
  const bool one_host = std::ranges::adjacent_find(hosts, std::not_equal_to()) == hosts.end();
  return one_host && hosts.size() > 1 && transports.maps();
}

size_t slice_bytes_max(const Config& config) {
  return std::max(config.slice_bytes / 64 * 64, kMappedEagerBytesMax);
}

PlanRequest plan_request(const Call& call, const Config& config, const TransportChoice& transports,
                         const Placement& placement, const Costs& costs) {
  PlanRequest request;
  request.collective = call.collective;
  request.ranks = static_cast<int>(placement.hosts.size());
  // The ranks of an all_to_all_v know different totals, but must choose alike.
  const bool uneven = call.collective == Collective::all_to_all && !call.counts.empty();
  request.bytes = uneven ? slice_bytes_max(config) : total_bytes(call, request.ranks);
  request.hosts = placement.hosts;
  request.rows = placement.rows;
  request.ranks_per_cpu = placement.ranks_per_cpu;
  request.racks = costs.racks;
  request.root = call.root;
  request.forced = call.algorithm;
  if (call.algorithm == Algorithm::automatic)
    request.forced = forced_by(config, call.collective, costs);
  if (uneven) request.forced = algorithm_for_counts(call);
  request.mapped = all_mapped(transports, placement.hosts);
  request.spreads = spreads(transports.spread_bytes_min);
  request.cost = costs.model;
  if (request.spreads) {  // every message takes all adapters
    request.cost.inter.s_per_byte /= request.cost.adapters;
    request.cost.adapters = 1;
  }
  request.times = costs.times;
  request.slow_ones_left_out = costs.calls == CostSource::profile;
  request.slice_bytes_max = slice_bytes_max(config);
  if (costs.network) {
    request.made = costs.network->find(request);
    if (costs.calls != CostSource::profile)  // which was measured at length
      request.simulated = costs.network->simulated(request);
  }
  return request;
}

PlanDecision plan_for(const Call& call, const Config& config, const TransportChoice& transports,
                      const Placement& placement, const Costs& costs) {
  if (placement.hosts.size() == 1)
    return {algorithms_for(call.collective).front(), slice_bytes_max(config), 0, {}};
  PlanDecision decision = choose(plan_request(call, config, transports, placement, costs));
  decision.slice_bytes = std::max(decision.slice_bytes / 64 * 64, kMappedEagerBytesMax);
  return decision;
}

}  // namespace ropewalk

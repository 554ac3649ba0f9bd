#include "tools/explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/log.h"
#include "communicator/find_costs.h"
#include "engine/layout.h"
#include "engine/wire.h"
#include "job/plan_request.h"
#include "job/tuning.h"
#include "reduce/reduce.h"
#include "ropewalk/status.h"
#include "topology/topology.h"

namespace ropewalk::tools {
namespace {

// Where a caller's buffer and the library's scratch would lie: addresses that are only compared.
std::byte* const kBuffer = reinterpret_cast<std::byte*>(uintptr_t{1} << 44);
std::byte* const kOtherBuffer = reinterpret_cast<std::byte*>(uintptr_t{1} << 45);
std::byte* const kScratch = reinterpret_cast<std::byte*>(uintptr_t{1} << 46);

void check(const ExplainOptions& options) {
  const auto refuse = [](const std::string& why, const std::string& advice) {
    throw Error(ErrorCode::invalid_argument, "explain", why, advice);
  };
  if (options.hosts < 1 || options.hosts > options.ranks)
    refuse(fmt::format("{} hosts for {} ranks", options.hosts, options.ranks),
           "give at most as many --hosts as ranks (-n)");
  if (options.rank < 0 || options.rank >= options.ranks)
    refuse(fmt::format("--rank {} of {} ranks", options.rank, options.ranks),
           fmt::format("choose 0 to {}", options.ranks - 1));
  if (options.root < 0 || options.root >= options.ranks)
    refuse(fmt::format("--root {} of {} ranks", options.root, options.ranks),
           fmt::format("choose 0 to {}", options.ranks - 1));
  check_algorithm("explain", options.kind, options.algorithm);
  if (options.kind.reduces() && !is_reducible(options.type, options.op))
    refuse(fmt::format("{} is not defined on {}", name_of(options.op.kind), name_of(options.type)),
           "choose another --op or --dtype");
}

/// Of ranks that may run on all CPUs that this process may.
Placement place(const ExplainOptions& options) {
  Placement placement;
  if (options.described) placement.hosts = options.described->host_of_rank();
  for (int rank = static_cast<int>(placement.hosts.size()); rank < options.ranks; ++rank)
    placement.hosts.push_back(static_cast<int>(int64_t{rank} * options.hosts / options.ranks));
  if (is_one_host_with_rows(placement.hosts))
    placement.rows = rows_of(std::vector<Locality>(placement.hosts.size()));
  const int ranks_per_host = hosts_of(placement.hosts, options.ranks).size_max();
  placement.ranks_per_cpu = std::max(
      1.0, static_cast<double>(ranks_per_host) / static_cast<double>(allowed_cpu_list().size()));
  return placement;
}

Call call_of(const ExplainOptions& options, const BenchShape& shape) {
  const bool in_place = options.kind.in_place_by_default();
  Call call;
  call.collective = options.kind.collective;
  call.count = shape.count;
  call.type = options.type;
  call.op = options.op;
  call.root = options.root;
  call.algorithm = options.algorithm;
  call.in = kBuffer + shape.in_offset * size_of(options.type);
  call.out = (in_place ? kBuffer : kOtherBuffer) + shape.out_offset * size_of(options.type);
  if (options.kind.collective == Collective::barrier) {
    call.count = 1;
    call.type = DataType::uint8;
    call.op = kMax;
  }
  return call;
}

/// Of the transport that was asked for, where it cannot be used here.
const TransportOffer* missing(const ExplainOptions& options) {
  for (const TransportOffer& offer : options.offers)
    if (offer.provider->name == options.config.transport && !offer.why_not.empty()) return &offer;
  return nullptr;
}

/// As the ranks of a job would choose that all have what this machine has.
TransportChoice choose_transports(const ExplainOptions& options, const std::vector<int>& hosts) {
  const std::string& transport = options.config.transport;
  const TransportOffer* lacked = missing(options);
  if (options.ranks > 1 && lacked != nullptr && !options.assume)
    throw Error(ErrorCode::unavailable, "explain",
                fmt::format("{} was asked for, but {}", transport, lacked->why_not),
                "`ropewalk doctor` says more; --assume plans as if it were there");
  PeerRecord like_here;
  for (const TransportOffer& offer : options.offers)
    like_here.transport_infos.emplace(offer.provider->name,
                                      &offer == lacked ? offer.provider->assumed : offer.info);
  PeerTable ranks(hosts.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    PeerRecord record = like_here;
    record.rank = static_cast<int>(rank);
    record.host_id = record.host_name = fmt::format("{}", hosts[rank]);
    ranks.set(rank, std::move(record));
  }
  return ropewalk::choose_transports(transport, options.config.require, ranks,
                                     options.config.secure, options.config.tcp_streams);
}

/// By rank: on which hosts of the profile the job is taken to be. On those that are described,
/// where it has all of these, else on its first; empty where it has too few.
std::vector<std::string> host_names_in(const TuningProfile& profile, const ExplainOptions& options,
                                       const std::vector<int>& hosts) {
  std::vector<std::string> known, described, names;
  for (const TuningProfile::Host& host : profile.hosts) known.push_back(host.name);
  if (options.described)
    for (const NetworkHost& host : options.described->hosts) described.push_back(host.name);
  const bool has_described = !described.empty() && std::ranges::all_of(described, [&](auto& name) {
    return std::ranges::find(known, name) != known.end();
  });
  const std::vector<std::string>& of_hosts = has_described ? described : known;
  if (hosts.back() >= std::ssize(of_hosts)) return {};
  for (const int host : hosts) names.push_back(of_hosts[static_cast<size_t>(host)]);
  return names;
}

/// As it is described, else as the profile says, of hosts of these names; null where neither
/// serves.
std::shared_ptr<JobNetwork> known_network(const ExplainOptions& options,
                                          const std::vector<int>& hosts,
                                          const std::vector<std::string>& names,
                                          const Costs& costs) {
  std::optional<Network> described = options.described;
  if (!described && costs.profile) described = costs.profile->network;
  if (!described) return nullptr;
  try {
    return std::make_shared<JobNetwork>(
        network_for(*described, hosts, options.described ? std::vector<std::string>() : names,
                    costs),
        options.rank, JobNetwork::Keep::all_schedules);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    log(LogLevel::warn, -1, "the network that the tuning profile describes is not used: {}",
        error.failure().reason);
    return nullptr;
  }
}

/// With those of the profile that ROPEWALK_TUNING names, whatever hosts it is of, or of a saved one
/// that this host has a part in.
Costs costs_of(const ExplainOptions& options, const TransportChoice& transports,
               const std::vector<int>& hosts) {
  Costs costs = unmeasured_costs(transports);
  TunedJob job{.host_names = {}, .hosts = hosts, .transport = names_of(transports)};
  if (options.config.tuning.empty()) job.host_names = {host_name()};
  const std::string text = find_tuning(options.config.tuning, job);
  if (!text.empty()) {
    costs.profile = std::make_shared<const TuningProfile>(parse_tuning(text));
    job.host_names = host_names_in(*costs.profile, options, hosts);
    apply_tuning(*costs.profile, job, costs);
  }
  costs.network =
      options.network ? options.network : known_network(options, hosts, job.host_names, costs);
  apply_description(costs);
  return costs;
}

std::string why_algorithm(const ExplainOptions& options, const Explanation& explanation) {
  if (explanation.decision.candidates.empty()) return "a job of one moves nothing";
  const Candidate& chosen = explanation.decision.candidates.front();
  if (explanation.forced_by_environment)
    return fmt::format("forced by ROPEWALK_ALGORITHM; {}", chosen.reason);
  if (options.algorithm != Algorithm::automatic) return fmt::format("forced; {}", chosen.reason);
  const auto eligible =
      std::count_if(explanation.decision.candidates.begin(), explanation.decision.candidates.end(),
                    [](const Candidate& c) { return c.eligible; });
  if (chosen.algorithm == Algorithm::synthesized)
    return fmt::format("gains more than {:.0f} % on the network that is described; {}",
                       100 * (kSynthesisGainMin - 1), chosen.reason);
  return eligible == 1 ? fmt::format("the only one; {}", chosen.reason)
                       : fmt::format("the fastest of {}; {}", eligible, chosen.reason);
}

std::string why_slices(const Explanation& explanation, const PlanRequest& request) {
  size_t longest = 0;
  for (const Traffic& traffic : explanation.traffic) longest = std::max(longest, traffic.bytes_max);
  const auto is_eager = [](const Traffic& t) { return t.protocol == MessageProtocol::eager; };
  if (std::ranges::all_of(explanation.traffic, is_eager))
    return fmt::format("messages up to {} bytes travel whole",
                       eager_bytes_max(request.mapped, request.spreads));
  if (longest <= explanation.decision.slice_bytes) return "no message is longer";
  if (explanation.decision.slice_bytes == request.slice_bytes_max)
    return "the longest that ROPEWALK_SLICE_BYTES allows";
  if (request.mapped) return "staging windows of that length stay in cache";
  return "to hide adding and handing on behind moving; not too short";
}

/// Where there is one.
std::optional<SimulatedSynthesis> synthesis_for(const Explanation& explanation) {
  const PlanRequest& request = explanation.request;
  if (!request.made || !request.made->why_not.empty()) return {};
  return explanation.costs.network->simulate(request.collective, request.root, request.bytes);
}

std::vector<Traffic> traffic(const Call& call, const ExplainOptions& options,
                             const Placement& placement, const Explanation& explanation,
                             const ChannelSetting& setting) {
  const PlanDecision& decision = explanation.decision;
  const Schedule schedule =
      decision.algorithm == Algorithm::synthesized
          ? explanation.costs.network->schedule(call.collective, call.root,
                                                total_bytes(call, options.ranks))
          : build_schedule({call.collective, decision.algorithm, options.ranks, call.root,
                            grouping_for(decision.algorithm, options.ranks, placement.hosts,
                                         explanation.costs.racks, placement.rows)},
                           options.rank);
  const std::vector<BlockMemory> blocks = lay_out(call, schedule);
  if (can_run_owner(call, schedule, blocks, all_mapped(explanation.transports, placement.hosts)))
    return traffic_of(make_owner_program(call, schedule, blocks, decision.slice_bytes, nullptr),
                      setting);
  const auto allocate = [](size_t) { return kScratch; };
  const auto eager_limit = [&](int peer) {
    return eager_bytes_max(setting.is_mapped(peer), explanation.request.spreads);
  };
  return traffic_of(compile(schedule, blocks, call, decision.slice_bytes, eager_limit, allocate),
                    setting);
}

}  // namespace

Explanation explain(const ExplainOptions& options) {
  check(options);
  const Placement placement = place(options);
  const std::vector<int>& hosts = placement.hosts;
  const BenchShape shape =
      bench_shape(options.kind, options.bytes, options.type, options.rank, options.ranks,
                  options.root, options.kind.in_place_by_default());
  const Call call = call_of(options, shape);
  Explanation explanation;
  explanation.bytes = total_bytes(call, options.ranks);
  explanation.transports = choose_transports(options, hosts);
  if (const TransportOffer* lacked = missing(options); lacked != nullptr && options.ranks > 1)
    explanation.assumed = lacked->why_not;
  explanation.transport = text_of(explanation.transports);
  if (!explanation.transports.reason.empty())
    explanation.transport += ": " + explanation.transports.reason;
  explanation.costs = costs_of(options, explanation.transports, hosts);
  explanation.decision =
      plan_for(call, options.config, explanation.transports, placement, explanation.costs);
  explanation.request =
      plan_request(call, options.config, explanation.transports, placement, explanation.costs);
  const PlanRequest& request = explanation.request;
  explanation.forced_by_environment =
      options.algorithm == Algorithm::automatic && request.forced != Algorithm::automatic;
  std::vector<bool> mapped;
  for (const int host : hosts)
    mapped.push_back(explanation.transports.maps() &&
                     host == hosts[static_cast<size_t>(options.rank)]);
  const ChannelSetting setting{
      [&mapped](int peer) { return mapped[static_cast<size_t>(peer)]; },
      [&options](const std::byte* at, size_t) { return options.registered || at >= kScratch; }};
  if (options.ranks > 1)
    explanation.traffic = traffic(call, options, placement, explanation, setting);
  if (options.ranks > 1) explanation.synthesized = synthesis_for(explanation);
  explanation.why = why_algorithm(options, explanation);
  explanation.why_slices = why_slices(explanation, request);
  return explanation;
}

}  // namespace ropewalk::tools

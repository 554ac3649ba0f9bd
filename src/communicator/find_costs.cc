#include "communicator/find_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/log.h"
#include "communicator/algorithm_probe.h"
#include "communicator/cost_probe.h"
#include "job/plan_request.h"
#include "job/tuning.h"
#include "network/job_hosts.h"
#include "simulate/job_network.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

constexpr size_t kDescriptionBytesMax = size_t{16} << 20;
constexpr const char* kDescribeAdvice =
    "ROPEWALK_NETWORK names a file on rank 0's host that describes all hosts of the job by their "
    "names, or just these in the order of their ranks (docs/network.md)";
constexpr const char* kProfileAdvice =
    "it is of the tuning profile: run `ropewalk tune` again with ROPEWALK_NETWORK";

/// Rank 0's `text`, which is at most so long. Collective.
std::string share_text(Communicator& communicator, std::string text, size_t bytes_max) {
  uint64_t bytes = text.size();
  communicator.broadcast(std::span(&bytes, 1), 0);
  if (bytes > bytes_max)
    throw Error(ErrorCode::protocol, "communicator",
                fmt::format("rank 0 has a text of {} bytes for all", bytes),
                "install the same Ropewalk on every rank");
  text.resize(bytes);
  if (bytes > 0) communicator.broadcast(std::span(text), 0);
  return text;
}

/// The tuning profile that rank 0 has found for this job; empty: none. Collective.
std::string share_tuning(Communicator& communicator, const Job& job, const TunedJob& tuned) {
  return share_text(communicator,
                    job.rank() == 0 ? find_tuning(job.config().tuning, tuned) : std::string(),
                    kTuningBytesMax);
}

/// No description begins with it: then follows why there is none.
constexpr char kNoNetwork = '!';

/// As it is described on rank 0, in the words that all get.
std::string described_network(const std::string& words) {
  try {
    std::string text = text_of(ropewalk::find_network(words, 0));
    if (text.size() <= kDescriptionBytesMax) return text;
    return fmt::format("{}{} is longer than {} bytes", kNoNetwork, words, kDescriptionBytesMax);
  } catch (const Error& error) {
    return fmt::format("{}{}: {}", kNoNetwork, words, error.failure().reason);
  }
}

/// What the description does not give of messages between hosts costs what was measured.
Network with_measured(Network network, const Costs& costs) {
  if (!is_measured(costs.inter)) return network;
  const GivenCosts& given = network.given;
  if (!given.between_overhead) network.between.overhead_s = costs.model.inter.overhead_s;
  if (given.between_latency) return network;
  network.between.latency_s = costs.model.inter.latency_s;
  for (NetworkLink& link : network.links) link.latency_s = link.delay_ms = 0;  // measured, too
  return network;
}

/// What rank 0 was told of the network, else what the profile says. Collective. Throws
/// Error(invalid_argument) where it does not serve.
std::optional<Network> find_description(Communicator& communicator, const Job& job,
                                        const Costs& costs) {
  if (!job.may_know_network())
    return costs.profile ? costs.profile->network : std::optional<Network>();
  const std::string text = share_text(
      communicator, job.rank() == 0 ? described_network(job.config().network) : std::string(),
      kDescriptionBytesMax);
  if (text.starts_with(kNoNetwork))
    throw Error(ErrorCode::invalid_argument, "network", text.substr(1));
  return parse_network(text);
}

/// The network as the job numbers its ranks; null where nothing is known that serves. Collective.
/// Throws where the algorithm that needs it is forced.
std::shared_ptr<JobNetwork> known_network(Communicator& communicator, const Job& job,
                                          const Costs& costs) {
  std::string why_not = "nothing is known of the network";
  try {
    if (const auto described = find_description(communicator, job, costs))
      return std::make_shared<JobNetwork>(
          network_for(*described, job.hosts(), job.host_names(), costs), job.rank());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    why_not = error.failure().reason;
    if (job.rank() == 0)
      log(LogLevel::warn, 0, "the description of the network is not used: {}; {}", why_not,
          job.may_know_network() ? kDescribeAdvice : kProfileAdvice);
  }
  if (job.config().algorithm == Algorithm::synthesized && job.size() > 1)
    throw Error(ErrorCode::unavailable, "communicator",
                "ROPEWALK_ALGORITHM=synthesized cannot be: " + why_not, kDescribeAdvice);
  return nullptr;
}

/// What a tuning profile can be asked about.
TunedJob tuned_job(const Job& job) {
  return {job.host_names(), job.hosts(), names_of(job.choice())};
}

/// Of links, and what a profile says of calls.
Costs find_link_costs(Communicator& communicator, const Job& job) {
  Costs costs = unmeasured_costs(job.choice());
  if (job.may_have_tuning()) {
    const TunedJob tuned = tuned_job(job);
    if (const std::string text = share_tuning(communicator, job, tuned); !text.empty()) {
      costs.profile = std::make_shared<const TuningProfile>(parse_tuning(text));
      apply_tuning(*costs.profile, tuned, costs);
    }
  }
  if (job.probes_costs() && costs.inter != CostSource::profile)
    costs = measure_costs(communicator, job.hosts(), std::move(costs));
  return costs;
}

/// Adds what calls take, where that is not known.
void find_call_times(Communicator& communicator, const Job& job, Costs& costs) {
  if (!job.probes_costs() || costs.calls == CostSource::profile || !is_measured(costs.inter))
    return;
  costs.calls = CostSource::probe;
  const Placement placement = job.placement();
  costs.times =
      time_short_calls(communicator, [&](const Call& call, const std::vector<MeasuredTime>& times) {
        costs.times = times;
        return plan_for(call, job.config(), job.choice(), placement, costs);
      });
}

/// Of what CPUs do, where it was not measured.
void describe_within(const Network& network, Costs& costs) {
  const GivenCosts& given = network.given;
  if (!is_measured(costs.intra)) {
    LinkCost& intra = costs.model.intra;
    if (given.within_latency) intra.latency_s = network.within.latency_s;
    if (given.within_overhead) intra.overhead_s = network.within.overhead_s;
    if (given.within_rate) intra.s_per_byte = network.within.s_per_byte;
    if (given.within_latency || given.within_overhead || given.within_rate)
      costs.intra = CostSource::described;
  }
  if (!is_measured(costs.reduce) && given.add) {
    costs.model.reduce_s_per_byte = network.add_s_per_byte;
    costs.reduce = CostSource::described;
  }
}

}  // namespace

Costs find_costs(Communicator& communicator, const Job& job) {
  Costs costs = find_link_costs(communicator, job);
  costs.network = known_network(communicator, job, costs);
  apply_description(costs);
  find_call_times(communicator, job, costs);
  return costs;
}

Network network_for(const Network& described, const std::vector<int>& hosts,
                    const std::vector<std::string>& names, const Costs& costs) {
  return with_measured(network_of_job(described, hosts, names), costs);
}

void apply_description(Costs& costs) {
  if (!costs.network) return;
  const Network& network = costs.network->network();
  const PlanRequest request = request_on(network, Collective::all_reduce, 0, 0);
  describe_within(network, costs);
  if (request.cost.inter.s_per_byte <= 0) return;  // one host, or links without a rate
  if (is_measured(costs.inter)) {
    // One pair of hosts at a time does not fill what its racks share.
    if (!costs.racks.empty()) return;
  } else {
    const LinkCost& described = request.cost.inter;
    LinkCost& inter = costs.model.inter;
    const GivenCosts& given = network.given;
    if (given.between_latency)
      inter.latency_s = described.latency_s;
    else
      inter.latency_s += network.receive_s;
    if (given.between_overhead) inter.overhead_s = described.overhead_s;
    inter.s_per_byte = described.s_per_byte;
    costs.model.adapters = request.cost.adapters;
    costs.inter = CostSource::described;
  }
  costs.model.racks_s_per_byte = request.cost.racks_s_per_byte;
  costs.racks = request.racks;
}

Costs costs_of_part(const Costs& costs, const std::vector<int>& hosts,
                    const std::vector<int>& ranks, const TunedJob& part) {
  Costs own = costs;
  own.racks.clear();
  if (!costs.racks.empty())
    for (const int rank : ranks) own.racks.push_back(costs.racks[static_cast<size_t>(rank)]);
  if (std::ranges::adjacent_find(own.racks, std::not_equal_to()) == own.racks.end())
    own.racks.clear();
  // Whole calls were timed with these ranks.
  if (part.hosts != hosts) {
    own.times.clear();
    own.calls = CostSource::constant;
  }
  if (own.profile) apply_tuning(*own.profile, part, own);
  return own;
}

void log_costs(const Costs& costs) {
  if (costs.inter != CostSource::constant)
    log(LogLevel::info, 0, "costs between hosts: {} ({})", text_of(costs.model.inter),
        name_of(costs.inter));
  if (!costs.racks.empty())
    log(LogLevel::info, 0, "between {} racks: {:.4g} MB/s",
        std::set(costs.racks.begin(), costs.racks.end()).size(),
        1e-6 / costs.model.racks_s_per_byte);
  if (costs.calls == CostSource::profile)
    log(LogLevel::info, 0, "times of {} calls come from a tuning profile", costs.times.size());
  if (costs.calls == CostSource::probe)
    for (const MeasuredTime& time : costs.times)
      log(LogLevel::info, 0, "{} of {} bytes by {}: {:.4g} us", name_of(time.collective),
          time.bytes, name_of(time.algorithm), 1e6 * time.seconds);
}

}  // namespace ropewalk

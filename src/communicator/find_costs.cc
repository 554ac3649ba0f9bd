#include "communicator/find_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/log.h"
#include "communicator/algorithm_probe.h"
#include "communicator/cost_probe.h"
#include "job/plan_request.h"
#include "job/tuning.h"

namespace ropewalk {
namespace {

/// The tuning profile that rank 0 has found for this job; empty: none. Collective.
std::string share_tuning(Communicator& communicator, const Job& job, const TunedJob& tuned) {
  std::string text;
  if (job.rank() == 0) text = find_tuning(job.config().tuning, tuned);
  uint64_t bytes = text.size();
  communicator.broadcast(std::span(&bytes, 1), 0);
  if (bytes > kTuningBytesMax)
    throw Error(ErrorCode::protocol, "communicator",
                fmt::format("rank 0 has a tuning profile of {} bytes", bytes),
                "install the same Ropewalk on every rank");
  text.resize(bytes);
  if (bytes > 0) communicator.broadcast(std::span(text), 0);
  return text;
}

/// What a tuning profile can be asked about.
TunedJob tuned_job(const Job& job) {
  return {job.host_names(), job.hosts(), names_of(job.choice())};
}

}  // namespace

Costs find_costs(Communicator& communicator, const Job& job) {
  Costs costs = unmeasured_costs(job.choice());
  if (job.may_have_tuning()) {
    const TunedJob tuned = tuned_job(job);
    if (const std::string text = share_tuning(communicator, job, tuned); !text.empty()) {
      costs.profile = std::make_shared<const TuningProfile>(parse_tuning(text));
      apply_tuning(*costs.profile, tuned, costs);
    }
  }
  if (!job.probes_costs()) return costs;
  if (costs.inter != CostSource::profile)
    costs = measure_costs(communicator, job.hosts(), std::move(costs));
  if (costs.calls == CostSource::profile ||
      (costs.inter != CostSource::probe && costs.inter != CostSource::profile))
    return costs;
  costs.calls = CostSource::probe;
  const Placement placement = job.placement();
  costs.times =
      time_short_calls(communicator, [&](const Call& call, const std::vector<MeasuredTime>& times) {
        costs.times = times;
        return plan_for(call, job.config(), job.choice(), placement, costs);
      });
  return costs;
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

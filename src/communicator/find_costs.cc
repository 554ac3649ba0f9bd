#include "communicator/find_costs.h"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

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

}  // namespace

TunedJob tuned_job(const Job& job) {
  return {job.host_names(), job.hosts(), names_of(job.choice())};
}

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
  costs.times =
      time_short_calls(communicator, [&](const Call& call, const std::vector<MeasuredTime>& times) {
        costs.times = times;
        return plan_for(call, job.config(), job.choice(), job.hosts(), costs);
      });
  return costs;
}

}  // namespace ropewalk

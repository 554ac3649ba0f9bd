#include "simulate/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "network/located_json.h"
#include "ropewalk/status.h"
#include "simulate/job_network.h"
#include "simulate/plan.h"

namespace ropewalk {
namespace {

constexpr double kMsMax = 1e9, kBucketBytesMax = 1e13;
const std::string kStep = "training step";
/// More steps, times slices, are not simulated: these take up to some 5 s.
constexpr uint64_t kStepMessagesMax = 4'000'000;

double require_number(JsonFields& fields, int line, const char* name, double least, double most) {
  const auto value = fields.number(name, least, most);
  if (!value) refuse_json(kStep, line, fields.path(name), "is missing");
  return *value;
}

/// What all_reduces take there.
class StepNetwork {
 public:
  StepNetwork(const Network& network, Algorithm forced)
      : forced_(forced),
        job_(network, 0, JobNetwork::Keep::all_schedules),
        routes_(job_.network()) {}

  TrainingStep::Call call(size_t bytes) {
    PlanRequest request = request_on(job_.network(), Collective::all_reduce, 0, bytes);
    request.forced = forced_;
    if (is_made(request)) return made_call(bytes);
    if (forced_ == Algorithm::automatic) request.forced = choose_on(routes_, request);
    TrainingStep::Call call{request.forced, 1e-6 * choose(request).predicted_us};
    CallToSimulate asked = call_for(request, call.algorithm);
    asked.messages_max = kStepMessagesMax;
    try {
      call.seconds = simulate_call(routes_, asked).seconds();
      call.is_simulated = true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted) throw;
    }
    return call;
  }

 private:
  /// Whether a job would run what is made for the network.
  bool is_made(PlanRequest request) {
    request.made = job_.find(request);
    request.simulated = job_.simulated(request);
    return choose(request).algorithm == Algorithm::synthesized;
  }
  TrainingStep::Call made_call(size_t bytes) {
    const SimulatedSynthesis made = job_.simulate(Collective::all_reduce, 0, bytes);
    if (!made.why_not.empty())
      throw Error(ErrorCode::exhausted, kStep, made.why_not, "use one of the algorithms");
    return {Algorithm::synthesized, made.call.seconds(), true};
  }

  const Algorithm forced_;
  JobNetwork job_;
  Routes routes_;
};

}  // namespace

TrainingModel parse_training_model(std::string_view text) {
  const LocatedJson json = parse_located_json(text, kStep);
  JsonFields top(json, "", kStep);
  TrainingModel model;
  model.backward_s = 1e-3 * require_number(top, json.line, "backward_ms", 0, kMsMax);
  for (const LocatedJson& item : array_of(top.require("buckets"), "buckets", kStep)) {
    JsonFields fields(item, fmt::format("buckets[{}]", model.buckets.size()), kStep);
    const double ready_ms =
        require_number(fields, item.line, "ready_ms", 0, 1e3 * model.backward_s);
    const double bytes = require_number(fields, item.line, "bytes", 1, kBucketBytesMax);
    fields.end();
    model.buckets.push_back({1e-3 * ready_ms, static_cast<size_t>(bytes)});
  }
  top.end();
  std::ranges::stable_sort(model.buckets, {}, &TrainingModel::Bucket::ready_s);
  return model;
}

TrainingStep simulate_step(const Network& network, const TrainingModel& model, Algorithm forced) {
  StepNetwork simulated(network, forced);
  TrainingStep step;
  std::map<size_t, TrainingStep::Call> known;  // by bytes
  double end = 0;
  for (const TrainingModel::Bucket& bucket : model.buckets) {
    auto found = known.find(bucket.bytes);
    if (found == known.end())
      found = known.emplace(bucket.bytes, simulated.call(bucket.bytes)).first;
    const TrainingStep::Call& call = found->second;
    end = std::max(end, bucket.ready_s) + call.seconds;
    step.communicating_s += call.seconds;
    step.calls.push_back(call);
  }
  step.seconds = std::max(end, model.backward_s);
  step.exposed_s = step.seconds - model.backward_s;
  return step;
}

}  // namespace ropewalk

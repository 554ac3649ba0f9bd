#include "simulate/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "network/located_json.h"

namespace ropewalk {
namespace {

constexpr double kMsMax = 1e9, kBucketBytesMax = 1e13;
const std::string kStep = "training step";

double require_number(JsonFields& fields, int line, const char* name, double least, double most) {
  const auto value = fields.number(name, least, most);
  if (!value) refuse_json(kStep, line, fields.path(name), "is missing");
  return *value;
}

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

TrainingStep simulate_step(Routes& routes, const TrainingModel& model) {
  TrainingStep step;
  std::map<size_t, std::pair<Algorithm, double>> known;  // by bytes
  double end = 0;
  for (const TrainingModel::Bucket& bucket : model.buckets) {
    auto found = known.find(bucket.bytes);
    if (found == known.end()) {
      const PlanRequest request =
          request_on(routes.network(), Collective::all_reduce, 0, bucket.bytes);
      const Algorithm chosen = choose_on(routes, request);
      const double seconds = simulate_call(routes, call_for(request, chosen)).seconds();
      found = known.emplace(bucket.bytes, std::pair(chosen, seconds)).first;
    }
    end = std::max(end, bucket.ready_s) + found->second.second;
    step.communicating_s += found->second.second;
    step.algorithms.push_back(found->second.first);
  }
  step.seconds = std::max(end, model.backward_s);
  step.exposed_s = step.seconds - model.backward_s;
  return step;
}

}  // namespace ropewalk

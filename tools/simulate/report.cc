// What `ropewalk simulate` prints.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "tools/bench/time_summary.h"
#include "tools/simulate/pictures.h"
#include "tools/simulate/simulate.h"

namespace ropewalk::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr size_t kLinksShown = 5;

double us_of(int64_t ps) {
  return 1e-6 * static_cast<double>(ps);
}

std::string row_of(const Simulated& simulated, const SimulatedAlgorithm& one) {
  const bool is_planned = one.algorithm == simulated.planned;
  std::string name = fmt::format("{}{}", ropewalk::name_of(one.algorithm), is_planned ? " *" : "");
  if (!one.why_not.empty()) return fmt::format("{:<20} {}\n", name, one.why_not);
  return fmt::format("{:<20} {:>10} {:>8.2f} {:>10} {:>14} {:>9}\n", name,
                     time_text(us_of(one.call.ps)), one.call.seconds() / simulated.least_s,
                     time_text(1e6 * one.planned_s), one.call.messages, one.call.ranks_run);
}

std::string detail_of(const Network& network, const SimulatedAlgorithm& one) {
  const SimulatedCall& call = one.call;
  std::string text = fmt::format("{}, in slices of {}\n", ropewalk::name_of(one.algorithm),
                                 bytes_text(one.slice_bytes));
  if (call.added_ps > 0)
    text += fmt::format("  phases  added up after {}, handed out after {}\n",
                        time_text(us_of(call.added_ps)), time_text(us_of(call.ps)));
  text += fmt::format("  CPU     of the busiest rank {:.1f} % of the time\n",
                      100.0 * static_cast<double>(call.cpu_ps) /
                          static_cast<double>(std::max<int64_t>(call.ps, 1)));
  for (size_t i = 0; i < std::min(kLinksShown, call.links.size()); ++i) {
    const LinkLoad& load = call.links[i];
    text += fmt::format("  link    {} busy {:.1f} % of the time, {}\n",
                        link_text(network, load.way), 100 * load.busy_s / call.seconds(),
                        bytes_text(static_cast<uint64_t>(load.bytes)));
  }
  return text;
}

Json json_of(const Network& network, const SimulatedAlgorithm& one) {
  Json json;
  json["algorithm"] = ropewalk::name_of(one.algorithm);
  json["planned_us"] = rounded(1e6 * one.planned_s, 1e3);
  json["slice_bytes"] = one.slice_bytes;
  if (!one.why_not.empty()) {
    json["why_not"] = one.why_not;
    return json;
  }
  json["predicted_us"] = us_of(one.call.ps);
  json["added_us"] = us_of(one.call.added_ps);
  json["cpu_us"] = us_of(one.call.cpu_ps);
  json["messages"] = one.call.messages;
  json["events"] = one.call.events;
  json["ranks_run"] = one.call.ranks_run;
  json["links"] = Json::array();
  for (size_t i = 0; i < std::min(kLinksShown, one.call.links.size()); ++i) {
    const LinkLoad& load = one.call.links[i];
    json["links"].push_back({{"way", link_text(network, load.way)},
                             {"busy_us", rounded(1e6 * load.busy_s, 1e3)},
                             {"bytes", load.bytes}});
  }
  return json;
}

}  // namespace

std::string simulated_text(const Network& network, const SimulateOptions& options,
                           const Simulated& simulated) {
  std::string text = fmt::format("{} of {}, {} ranks on {} hosts: {}\n",
                                 ropewalk::name_of(options.collective), bytes_text(options.bytes),
                                 network.ranks(), network.hosts.size(), options.network_words);
  if (!simulated.faults.empty()) text += fmt::format("faults      {}\n", simulated.faults);
  text += fmt::format("lower bound {}\n\n", time_text(1e6 * simulated.least_s));
  text += fmt::format("{:<20} {:>10} {:>8} {:>10} {:>14} {:>9}\n", "algorithm", "predicted",
                      "of bound", "planner's", "messages", "ranks run");
  for (const SimulatedAlgorithm& one : simulated.algorithms) text += row_of(simulated, one);
  text += "* what the planner would choose here\n";
  if (!simulated.algorithms.empty() && simulated.algorithms.front().why_not.empty())
    text += "\n" + detail_of(network, simulated.algorithms.front());
  return text;
}

std::string simulated_json(const Network& network, const SimulateOptions& options,
                           const Simulated& simulated) {
  Json json;
  json["collective"] = ropewalk::name_of(options.collective);
  json["bytes"] = options.bytes;
  json["ranks"] = network.ranks();
  json["hosts"] = network.hosts.size();
  json["network"] = options.network_words;
  if (!simulated.faults.empty()) json["faults"] = simulated.faults;
  json["lower_bound_us"] = rounded(1e6 * simulated.least_s, 1e3);
  json["planned"] = ropewalk::name_of(simulated.planned);
  json["algorithms"] = Json::array();
  for (const SimulatedAlgorithm& one : simulated.algorithms)
    json["algorithms"].push_back(json_of(network, one));
  return json.dump() + "\n";
}

std::string step_text(const TrainingModel& model, const TrainingStep& step) {
  std::string text = fmt::format(
      "backward pass {}, {} buckets\nstep          {}\ncommunication {}, of which {} is exposed\n",
      time_text(1e6 * model.backward_s), model.buckets.size(), time_text(1e6 * step.seconds),
      time_text(1e6 * step.communicating_s), time_text(1e6 * step.exposed_s));
  for (size_t i = 0; i < model.buckets.size(); ++i)
    text += fmt::format(
        "  bucket {:<4} {:>10} ready after {:>8}, {}\n", i, bytes_text(model.buckets[i].bytes),
        time_text(1e6 * model.buckets[i].ready_s), ropewalk::name_of(step.algorithms[i]));
  return text;
}

std::string step_json(const TrainingModel& model, const TrainingStep& step) {
  Json json{{"backward_us", rounded(1e6 * model.backward_s, 1e3)},
            {"step_us", rounded(1e6 * step.seconds, 1e3)},
            {"communication_us", rounded(1e6 * step.communicating_s, 1e3)},
            {"exposed_us", rounded(1e6 * step.exposed_s, 1e3)}};
  json["algorithms"] = Json::array();
  for (const Algorithm algorithm : step.algorithms)
    json["algorithms"].push_back(ropewalk::name_of(algorithm));
  return json.dump() + "\n";
}

}  // namespace ropewalk::tools

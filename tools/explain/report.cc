// What `ropewalk explain` prints.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.h"
#include "tools/bench/time_summary.h"
#include "tools/explain/explain.h"
#include "tools/simulate/simulate.h"

namespace ropewalk::tools {
namespace {

std::string call_text(const ExplainOptions& options, const Explanation& explanation) {
  std::string text = options.kind.name() + ": ";
  if (options.kind.collective != Collective::barrier)
    text += fmt::format("{} of {}, ", bytes_text(explanation.bytes), name_of(options.type));
  if (options.kind.reduces()) text += fmt::format("{}, ", name_of(options.op.kind));
  return text + fmt::format("{} rank{} on {} host{}, {} buffers\n", options.ranks,
                            options.ranks == 1 ? "" : "s", options.hosts,
                            options.hosts == 1 ? "" : "s",
                            options.registered ? "registered" : "plain");
}

std::string_view transport_of(const Traffic& traffic, const TransportChoice& decision) {
  if (traffic.mapped) return name_of(decision.within);
  return name_of(decision.between == nullptr ? decision.within : decision.between);
}

std::string traffic_text(const Traffic& traffic, const TransportChoice& decision) {
  const std::string size = traffic.bytes == traffic.messages * traffic.bytes_max
                               ? bytes_text(traffic.bytes_max)
                               : "up to " + bytes_text(traffic.bytes_max);
  return fmt::format("  {:<8} {:>5} x {:<14} {:<5}  {}\n", traffic.sending ? "sends" : "receives",
                     traffic.messages, size, transport_of(traffic, decision),
                     describe(traffic.protocol, traffic.sending));
}

struct PricedLinks {
  std::string_view where;
  LinkCost cost;
  CostSource source;
};

/// Of the kinds of links that there are, what the planner reckons with.
std::vector<PricedLinks> links_of(const Explanation& explanation) {
  const Costs& costs = explanation.costs;
  std::vector<PricedLinks> links;
  if (explanation.transports.within != nullptr)
    links.push_back({"within hosts", costs.model.intra, costs.intra});
  if (explanation.transports.between != nullptr)
    links.push_back({"between hosts", costs.model.inter, costs.inter});
  return links;
}

}  // namespace

std::string explanation_text(const ExplainOptions& options, const Explanation& explanation) {
  const PlanDecision& decision = explanation.decision;
  std::string text = call_text(options, explanation);
  text += fmt::format("algorithm  {}, predicted {}: {}\n", name_of(decision.algorithm),
                      time_text(decision.predicted_us), explanation.why);
  text +=
      fmt::format("slices     {}: {}\n", bytes_text(decision.slice_bytes), explanation.why_slices);
  text += fmt::format("transport  {}\n", explanation.transport);
  for (const PricedLinks& links : links_of(explanation))
    text += fmt::format("costs      {}: {} ({})\n", links.where, text_of(links.cost),
                        name_of(links.source));
  if (!explanation.costs.times.empty())
    text += fmt::format("times      of {} calls are measured ({})\n",
                        explanation.costs.times.size(), name_of(explanation.costs.calls));
  if (!explanation.assumed.empty())
    text += fmt::format("assumed    {} could be used. It cannot: {}\n", options.config.transport,
                        explanation.assumed);
  if (!explanation.traffic.empty()) {
    text += fmt::format("channel    of rank {}\n", options.rank);
    for (const Traffic& traffic : explanation.traffic)
      text += traffic_text(traffic, explanation.transports);
  }
  if (explanation.synthesized)
    text += synthesis_text(explanation.costs.network->network(), *explanation.synthesized,
                           explanation.bytes);
  if (decision.candidates.size() < 2) return text;
  text += "passed over\n";
  for (size_t i = 1; i < decision.candidates.size(); ++i) {
    const Candidate& candidate = decision.candidates[i];
    text += fmt::format("  {:<18} {:>9}  {}\n", name_of(candidate.algorithm),
                        time_text(candidate.predicted_us),
                        candidate.eligible ? "slower: " + candidate.reason : candidate.reason);
  }
  return text + "Predicted times are for comparing; ropewalk bench measures.\n";
}

std::string explanation_json(const ExplainOptions& options, const Explanation& explanation) {
  const PlanDecision& decision = explanation.decision;
  nlohmann::ordered_json json;
  json["collective"] = options.kind.name();
  json["bytes"] = explanation.bytes;
  json["dtype"] = name_of(options.type);
  json["op"] = options.kind.reduces() ? name_of(options.op.kind) : "none";
  json["ranks"] = options.ranks;
  json["hosts"] = options.hosts;
  json["buffers"] = options.registered ? "registered" : "plain";
  json["transport"] = explanation.transport;
  if (!explanation.assumed.empty()) json["assumed_though"] = explanation.assumed;
  json["algorithm"] = name_of(decision.algorithm);
  json["predicted_us"] = rounded(decision.predicted_us, 1e3);
  json["why"] = explanation.why;
  json["slice_bytes"] = decision.slice_bytes;
  json["why_slices"] = explanation.why_slices;
  json["costs"] = nlohmann::json::array();
  for (const PricedLinks& links : links_of(explanation))
    json["costs"].push_back({{"links", links.where},
                             {"latency_us", rounded(links.cost.latency_s * 1e6, 1e3)},
                             {"overhead_us", rounded(links.cost.overhead_s * 1e6, 1e3)},
                             {"mb_per_s", rounded(1e-6 / links.cost.s_per_byte, 10)},
                             {"source", name_of(links.source)}});
  json["measured_calls"] = explanation.costs.times.size();
  json["rank"] = options.rank;
  json["channel"] = nlohmann::json::array();
  for (const Traffic& traffic : explanation.traffic) {
    nlohmann::ordered_json entry;
    entry["direction"] = traffic.sending ? "send" : "receive";
    entry["transport"] = transport_of(traffic, explanation.transports);
    entry["protocol"] = name_of(traffic.protocol);
    entry["messages"] = traffic.messages;
    entry["bytes"] = traffic.bytes;
    json["channel"].push_back(entry);
  }
  if (explanation.synthesized)
    json[name_of(Algorithm::synthesized)] = nlohmann::ordered_json::parse(synthesis_json(
        explanation.costs.network->network(), *explanation.synthesized, explanation.bytes));
  json["passed_over"] = nlohmann::json::array();
  for (size_t i = 1; i < decision.candidates.size(); ++i) {
    const Candidate& candidate = decision.candidates[i];
    nlohmann::ordered_json entry;
    entry["algorithm"] = name_of(candidate.algorithm);
    entry["predicted_us"] = rounded(candidate.predicted_us, 1e3);
    entry["eligible"] = candidate.eligible;
    entry["reason"] = candidate.reason;
    json["passed_over"].push_back(entry);
  }
  return json.dump() + "\n";
}

}  // namespace ropewalk::tools

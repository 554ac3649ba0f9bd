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
const std::string_view kMadeName = ropewalk::name_of(Algorithm::synthesized);

double us_of(int64_t ps) {
  return 1e-6 * static_cast<double>(ps);
}

std::string row_of(const Simulated& simulated, const SimulatedCall& call, Algorithm algorithm,
                   const std::string& planned) {
  const std::string_view star = simulated.best == algorithm ? " *" : "";
  const std::string of_bound =
      simulated.least_s > 0 ? fmt::format("{:.2f}", call.seconds() / simulated.least_s) : "-";
  return fmt::format("{:<20} {:>10} {:>8} {:>10} {:>14} {:>9}\n",
                     fmt::format("{}{}", ropewalk::name_of(algorithm), star),
                     time_text(us_of(call.ps)), of_bound, planned, call.messages, call.ranks_run);
}
std::string row_of(const Simulated& simulated, const SimulatedAlgorithm& one) {
  if (!one.why_not.empty())
    return fmt::format("{:<20} {}\n", ropewalk::name_of(one.algorithm), one.why_not);
  return row_of(simulated, one.call, one.algorithm, time_text(1e6 * one.planned_s));
}

/// Fastest first.
std::string rows_of(const Simulated& simulated) {
  std::string text;
  if (simulated.synthesized && !simulated.synthesized->why_not.empty())
    text = fmt::format("{:<20} {}\n", kMadeName, simulated.synthesized->why_not);
  bool is_due = simulated.synthesized && text.empty();
  const auto synthesized = [&] {
    is_due = false;
    return row_of(simulated, simulated.synthesized->call, Algorithm::synthesized, "");
  };
  std::string rows;
  for (const SimulatedAlgorithm& one : simulated.algorithms) {
    if (is_due && (!one.why_not.empty() || simulated.synthesized->call.ps < one.call.ps))
      rows += synthesized();
    rows += row_of(simulated, one);
  }
  if (is_due) rows += synthesized();
  return rows + text;
}

/// How the schedules that were made for the network are, fast or not.
std::string made_text(const Network& network, const SimulatedSynthesis& one) {
  if (!one.why_not.empty()) return "";
  const Synthesized& made = one.made;
  return fmt::format(
      "{}: {} trees of depth {}, made and proven in {}, of which the proof took {}\n"
      "  bound   {:.2f} times by {}, the busiest link\n",
      kMadeName, made.trees, made.depth, time_text(1e6 * one.made_s), time_text(1e6 * made.proof_s),
      made.busy_s_per_byte / made.least_s_per_byte, link_text(network, made.busiest));
}

std::string detail_of(const Network& network, const SimulatedCall& call, std::string_view name,
                      size_t slice_bytes) {
  std::string text = fmt::format("{}, in slices of {}\n", name, bytes_text(slice_bytes));
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

/// What algorithms and schedules that were made have alike.
void fill_json(const Network& network, const SimulatedCall& call, const std::string& why_not,
               Json& json) {
  if (!why_not.empty()) {
    json["why_not"] = why_not;
    return;
  }
  json["predicted_us"] = us_of(call.ps);
  json["added_us"] = us_of(call.added_ps);
  json["cpu_us"] = us_of(call.cpu_ps);
  json["messages"] = call.messages;
  json["events"] = call.events;
  json["ranks_run"] = call.ranks_run;
  json["links"] = Json::array();
  for (const LinkLoad& load : call.links) {
    json["links"].push_back({{"way", link_text(network, load.way)},
                             {"busy_us", rounded(1e6 * load.busy_s, 1e3)},
                             {"bytes", load.bytes}});
  }
}

Json json_of(const Network& network, const SimulatedAlgorithm& one) {
  Json json;
  json["algorithm"] = ropewalk::name_of(one.algorithm);
  json["planned_us"] = rounded(1e6 * one.planned_s, 1e3);
  json["slice_bytes"] = one.slice_bytes;
  fill_json(network, one.call, one.why_not, json);
  return json;
}

Json json_of(const Network& network, const SimulatedSynthesis& one, size_t bytes) {
  Json json;
  const auto of_vector_us = [bytes](double s_per_byte) {
    return rounded(1e6 * s_per_byte * static_cast<double>(bytes), 1e3);
  };
  if (one.why_not.empty()) {
    json["slice_bytes"] = one.slice_bytes;
    json["trees"] = one.made.trees;
    json["depth"] = one.made.depth;
    json["steps"] = one.made.steps;
    json["links_least_us"] = of_vector_us(one.made.least_s_per_byte);
    json["busiest_link_us"] = of_vector_us(one.made.busy_s_per_byte);
    json["made_s"] = rounded(one.made_s, 1e6);
    json["proof_s"] = rounded(one.made.proof_s, 1e6);
  }
  fill_json(network, one.call, one.why_not, json);
  return json;
}

struct MadeTree {
  int root = 0;
  std::vector<std::pair<int, int>> edges;
};

/// By block of the forest.
std::vector<MadeTree> trees_of(const SimulatedSynthesis& one) {
  std::vector<MadeTree> trees(static_cast<size_t>(one.trees));
  for (const TreeMessage& message : one.tree_messages) {
    MadeTree& tree = trees[static_cast<size_t>(message.block)];
    if (tree.edges.empty()) tree.root = message.from;
    tree.edges.emplace_back(message.from, message.to);
  }
  return trees;
}

Json forest_json(const SimulatedSynthesis& one) {
  Json forest = Json::array();
  for (const MadeTree& tree : trees_of(one))
    forest.push_back({{"root", tree.root}, {"share", 1.0 / one.trees}, {"edges", tree.edges}});
  return forest;
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
  text += rows_of(simulated);
  if (simulated.best) text += "* what to choose here\n";
  const auto& synthesized = simulated.synthesized;
  if (simulated.synthesized_is_fastest()) {
    text += "\n" + detail_of(network, synthesized->call, kMadeName, synthesized->slice_bytes);
  } else if (simulated.has_any()) {
    const SimulatedAlgorithm& fastest = simulated.algorithms.front();
    text += "\n" + detail_of(network, fastest.call, ropewalk::name_of(fastest.algorithm),
                             fastest.slice_bytes);
  }
  if (synthesized) text += made_text(network, *synthesized);
  return text + (options.trees && synthesized ? trees_text(*synthesized) : "");
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
  if (simulated.best) json["planned"] = ropewalk::name_of(*simulated.best);
  json["algorithms"] = Json::array();
  for (const SimulatedAlgorithm& one : simulated.algorithms)
    json["algorithms"].push_back(json_of(network, one));
  if (simulated.synthesized) {
    json[kMadeName] = json_of(network, *simulated.synthesized, options.bytes);
    if (options.trees) json[kMadeName]["forest"] = forest_json(*simulated.synthesized);
  }
  return json.dump() + "\n";
}

std::string synthesis_text(const Network& network, const SimulatedSynthesis& one, size_t bytes) {
  if (!one.why_not.empty()) return "";
  return fmt::format("{}  lower   bound of the links {}\n", made_text(network, one),
                     time_text(1e6 * one.made.least_s_per_byte * static_cast<double>(bytes))) +
         detail_of(network, one.call, kMadeName, one.slice_bytes);
}

std::string synthesis_json(const Network& network, const SimulatedSynthesis& one, size_t bytes) {
  return json_of(network, one, bytes).dump();
}

std::string trees_text(const SimulatedSynthesis& one) {
  std::string text;
  for (const MadeTree& tree : trees_of(one)) {
    text += fmt::format("  tree    of rank {}, 1/{} of the vector:", tree.root, one.trees);
    for (const auto& [from, to] : tree.edges) text += fmt::format(" {}>{}", from, to);
    text += "\n";
  }
  return text;
}

std::string step_text(const TrainingModel& model, const TrainingStep& step) {
  std::string text = fmt::format(
      "backward pass {}, {} buckets\nstep          {}\ncommunication {}, of which {} is exposed\n",
      time_text(1e6 * model.backward_s), model.buckets.size(), time_text(1e6 * step.seconds),
      time_text(1e6 * step.communicating_s), time_text(1e6 * step.exposed_s));
  for (size_t i = 0; i < model.buckets.size(); ++i)
    text += fmt::format(
        "  bucket {:<4} {:>10} ready after {:>8}, {}, {}{}\n", i,
        bytes_text(model.buckets[i].bytes), time_text(1e6 * model.buckets[i].ready_s),
        ropewalk::name_of(step.calls[i].algorithm), time_text(1e6 * step.calls[i].seconds),
        step.calls[i].is_simulated ? "" : " by its closed form: it is too long to be simulated");
  return text;
}

std::string step_json(const TrainingModel& model, const TrainingStep& step) {
  Json json{{"backward_us", rounded(1e6 * model.backward_s, 1e3)},
            {"step_us", rounded(1e6 * step.seconds, 1e3)},
            {"communication_us", rounded(1e6 * step.communicating_s, 1e3)},
            {"exposed_us", rounded(1e6 * step.exposed_s, 1e3)}};
  json["algorithms"] = Json::array();
  json["calls_us"] = Json::array();
  for (const TrainingStep::Call& call : step.calls) {
    json["algorithms"].push_back(ropewalk::name_of(call.algorithm));
    json["calls_us"].push_back(rounded(1e6 * call.seconds, 1e3));
  }
  return json.dump() + "\n";
}

}  // namespace ropewalk::tools

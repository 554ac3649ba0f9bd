// The picture of `ropewalk explain --plot`.
#include <fmt/format.h>

#include <map>

#include "base/units.h"
#include "ropewalk/status.h"
#include "tools/explain/explain.h"
#include "tools/simulate/pictures.h"

namespace ropewalk::tools {
namespace {

constexpr const char* kHosts = "What follows is told by the simulator (docs/simulation.md).";
constexpr const char* kOneHost =
    "What follows is told by the simulator (docs/simulation.md). It knows nothing of the owner "
    "executor, by which ranks of one host may be faster.";

TimesOverSize planned_times(const ExplainOptions& options, const Explanation& first,
                            const Network& network) {
  TimesOverSize times;
  for (const size_t bytes : options.sizes) {
    ExplainOptions of_size = options;
    of_size.bytes = bytes;
    of_size.network = first.costs.network;
    const Explanation explanation = explain(of_size);
    const auto x = static_cast<double>(explanation.bytes);
    times.bound.push_back({x, 1e6 * least_seconds(network, options.kind.collective, options.root,
                                                  explanation.bytes)});
    for (const Candidate& candidate : explanation.decision.candidates)
      if (candidate.eligible)
        times.algorithms[candidate.algorithm].push_back({x, candidate.predicted_us});
  }
  return times;
}

void add_simulated(std::vector<Panel>& panels, const Explanation& explanation,
                   const Network& network) {
  Routes routes(network);
  const CallToSimulate call =
      explanation.decision.algorithm == Algorithm::synthesized
          ? call_for(request_on(network, explanation.request.collective, explanation.request.root,
                                explanation.bytes),
                     explanation.synthesized->made)
          : call_for(explanation.request, explanation.decision.algorithm);
  try {
    panels.push_back(schedule_panel(routes, call));
    panels.push_back(links_panel(network, simulate_call(routes, call)));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    panels.push_back(NotePanel{"Not simulated", error.failure().reason});
  }
}

}  // namespace

Network explained_network(const Explanation& explanation) {
  const PlanRequest& request = explanation.request;
  Network network;
  network.within = request.cost.intra;
  network.between = request.cost.inter;
  network.between.s_per_byte = 0;  // of the links
  network.add_s_per_byte = request.cost.reduce_s_per_byte;
  std::map<int, int> rack_of_host;
  for (size_t rank = 0; rank < request.hosts.size(); ++rank)
    rack_of_host[request.hosts[rank]] = request.racks.empty() ? 0 : request.racks[rank];
  std::map<int, int> ranks, switches;  // by host; by rack
  for (const int host : request.hosts) ++ranks[host];
  for (const auto& [host, count] : ranks)
    network.hosts.push_back({fmt::format("host{}", host), count});
  if (network.hosts.size() < 2) return network;
  for (const auto& [host, rack] : rack_of_host)
    if (switches.try_emplace(rack, static_cast<int>(network.switches.size())).second)
      network.switches.push_back(fmt::format("switch{}", rack));
  int number = 0;
  for (const auto& [host, rack] : rack_of_host)
    network.links.push_back({.ends = {number++, network.host_count() + switches[rack]},
                             .s_per_byte = request.cost.inter.s_per_byte / request.cost.adapters});
  if (switches.size() < 2) return network;
  network.switches.push_back("core");
  for (const auto& [rack, at] : switches)
    network.links.push_back({.ends = {network.host_count() + at, network.node_count() - 1},
                             .s_per_byte = request.cost.racks_s_per_byte});
  return network;
}

void plot_explanation(const ExplainOptions& options, const Explanation& explanation,
                      const PlotFile& file) {
  const std::string title =
      fmt::format("{} of {}, {} ranks, {} host{}: {}", options.kind.name(),
                  bytes_text(explanation.bytes), options.ranks, options.hosts,
                  options.hosts == 1 ? "" : "s", name_of(explanation.decision.algorithm));
  if (options.ranks == 1) return file.write(title, {lone_rank_panel()});
  const Network network = explanation.costs.network ? explanation.costs.network->network()
                                                    : explained_network(explanation);
  std::vector<Panel> panels = {
      times_panel("Time as the planner predicts it", planned_times(options, explanation, network))};
  panels.push_back(
      NotePanel{"Simulated with the same costs", options.hosts == 1 ? kOneHost : kHosts});
  add_simulated(panels, explanation, network);
  file.write(title, panels);
}

}  // namespace ropewalk::tools

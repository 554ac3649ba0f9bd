// The picture of `ropewalk simulate --plot`.
#include <fmt/format.h>

#include "base/units.h"
#include "tools/simulate/pictures.h"
#include "tools/simulate/simulate.h"

namespace ropewalk::tools {
namespace {

TimesOverSize simulated_times(Routes& routes, const SimulateOptions& options,
                              const Simulated& at_bytes) {
  TimesOverSize times;
  for (const size_t bytes : options.sizes) {
    SimulateOptions of_size = options;
    of_size.bytes = bytes;
    const Simulated simulated = bytes == options.bytes ? at_bytes : simulate_all(routes, of_size);
    const auto x = static_cast<double>(bytes);
    times.bound.push_back({x, 1e6 * simulated.least_s});
    for (const SimulatedAlgorithm& one : simulated.algorithms)
      if (one.why_not.empty())
        times.algorithms[one.algorithm].push_back({x, 1e6 * one.call.seconds()});
    if (const auto& made = simulated.synthesized; made && made->why_not.empty())
      times.synthesized.push_back({x, 1e6 * made->call.seconds()});
  }
  return times;
}

}  // namespace

void plot_simulation(Routes& routes, const SimulateOptions& options, const Simulated& simulated,
                     const PlotFile& file) {
  const Network& network = routes.network();
  const std::string title =
      fmt::format("{} of {}, {} ranks on {} hosts: {}{}{}", name_of(options.collective),
                  bytes_text(options.bytes), network.ranks(), network.hosts.size(),
                  options.network_words, simulated.faults.empty() ? "" : "; ", simulated.faults);
  if (network.ranks() == 1) return file.write(title, {lone_rank_panel()});
  std::vector<Panel> panels = {
      times_panel("Simulated time", simulated_times(routes, options, simulated))};
  if (simulated.has_any()) {
    panels.push_back(schedule_panel(routes, fastest_call(routes, options, simulated)));
    panels.push_back(links_panel(network, simulated.synthesized_is_fastest()
                                              ? simulated.synthesized->call
                                              : simulated.algorithms.front().call));
  } else if (simulated.algorithms.empty()) {
    panels.push_back(
        NotePanel{std::string(name_of(Algorithm::synthesized)), simulated.synthesized->why_not});
  } else {
    const SimulatedAlgorithm& first = simulated.algorithms.front();
    panels.push_back(NotePanel{std::string(name_of(first.algorithm)), first.why_not});
  }
  file.write(title, panels);
}

}  // namespace ropewalk::tools

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
  const SimulatedAlgorithm& fastest = simulated.algorithms.front();
  if (fastest.why_not.empty()) {
    panels.push_back(schedule_panel(routes, call_of(routes, options, fastest.algorithm)));
    panels.push_back(links_panel(network, fastest.call));
  } else {
    panels.push_back(NotePanel{std::string(name_of(fastest.algorithm)), fastest.why_not});
  }
  file.write(title, panels);
}

}  // namespace ropewalk::tools

#include "tools/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <fstream>

#include "ropewalk/status.h"

namespace ropewalk::tools {

namespace {

std::optional<SimulatedSynthesis> synthesized_for(Routes& routes, const PlanRequest& request,
                                                  const SimulateOptions& options) {
  const TreeUse use = tree_use(request.collective);
  const Network& network = routes.network();
  const bool is_quick = network.host_count() > 1 && synthesizes_by_default(network) &&
                        (use.inwards || use.outwards) && can_synthesize();
  const bool is_wanted = options.algorithm == Algorithm::automatic && is_quick;
  if (options.algorithm != Algorithm::synthesized && !is_wanted) return {};
  return simulate_synthesized(routes, request, options.way);
}

}  // namespace

bool Simulated::has_any() const {
  return (!algorithms.empty() && algorithms.front().why_not.empty()) ||
         (synthesized && synthesized->why_not.empty());
}

bool Simulated::synthesized_is_fastest() const {
  if (!synthesized || !synthesized->why_not.empty()) return false;
  return algorithms.empty() || !algorithms.front().why_not.empty() ||
         synthesized->call.ps < algorithms.front().call.ps;
}

Simulated simulate_all(Routes& routes, const SimulateOptions& options) {
  const Network& network = routes.network();
  PlanRequest request = request_on(network, options.collective, options.root, options.bytes);
  std::vector<SimulatedAlgorithm> known;
  Simulated simulated{
      .faults = {},
      .least_s = least_seconds(network, options.collective, options.root, options.bytes),
      .planned = choose_on(routes, request, &known),
      .algorithms = {},
      .synthesized = synthesized_for(routes, request, options)};
  request.forced = options.algorithm;
  if (options.algorithm != Algorithm::synthesized)
    simulated.algorithms = simulate_algorithms(routes, request, options.way, known);
  if (simulated.synthesized)
    simulated.least_s = std::max(simulated.least_s, simulated.synthesized->made.least_s_per_byte *
                                                        static_cast<double>(options.bytes));
  return simulated;
}

CallToSimulate fastest_call(Routes& routes, const SimulateOptions& options,
                            const Simulated& simulated) {
  assert(simulated.has_any());
  const PlanRequest request =
      request_on(routes.network(), options.collective, options.root, options.bytes);
  return simulated.synthesized_is_fastest()
             ? call_for(request, simulated.synthesized->made)
             : call_for(request, simulated.algorithms.front().algorithm, options.way);
}

void write_trace(Routes& routes, const SimulateOptions& options, const Simulated& simulated) {
  if (!simulated.has_any()) return;
  std::ofstream file(options.trace);
  file << "# posted_us arrived_us from to block bytes\n";
  CallToSimulate call = fastest_call(routes, options, simulated);
  call.event_by_event = true;
  call.on_message = [&file](const SimulatedMessage& message) {
    file << fmt::format("{:.6f} {:.6f} {} {} {} {:.0f}\n", 1e6 * message.posted_s,
                        1e6 * message.arrived_s, message.from, message.to, message.block,
                        message.bytes);
  };
  simulate_call(routes, call);
  if (!file.flush())
    throw Error(ErrorCode::system, "simulate", fmt::format("cannot write {}", options.trace));
}

}  // namespace ropewalk::tools

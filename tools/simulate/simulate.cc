#include "tools/simulate/simulate.h"

#include <fmt/format.h>

#include <fstream>

#include "ropewalk/status.h"

namespace ropewalk::tools {

Simulated simulate_all(Routes& routes, const SimulateOptions& options) {
  const Network& network = routes.network();
  PlanRequest request = request_on(network, options.collective, options.root, options.bytes);
  const PlanDecision decision = choose(request);
  request.forced = options.algorithm;
  return {.faults = {},
          .least_s = least_seconds(network, options.collective, options.root, options.bytes),
          .planned = decision.algorithm,
          .algorithms = simulate_algorithms(routes, request, options.way)};
}

CallToSimulate call_of(Routes& routes, const SimulateOptions& options, Algorithm algorithm) {
  return call_for(request_on(routes.network(), options.collective, options.root, options.bytes),
                  algorithm, options.way);
}

void write_trace(Routes& routes, const SimulateOptions& options, const Simulated& simulated) {
  const SimulatedAlgorithm& fastest = simulated.algorithms.front();
  if (!fastest.why_not.empty()) return;
  std::ofstream file(options.trace);
  file << "# posted_us arrived_us from to block bytes\n";
  CallToSimulate call = call_of(routes, options, fastest.algorithm);
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

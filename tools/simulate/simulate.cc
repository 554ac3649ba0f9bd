#include "tools/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "base/units.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

void tell(const SimulateOptions& options, Algorithm algorithm) {
  if (options.on_begin)
    options.on_begin(fmt::format("{} of {}", name_of(algorithm), bytes_text(options.bytes)));
}

void require_short(double least_s) {
  if (least_s > kSimulatedSecondsMax)
    throw Error(ErrorCode::invalid_argument, "simulate",
                fmt::format("it takes {:.3g} s at least", least_s),
                fmt::format("ask for what links pass in {:.0f} s", kSimulatedSecondsMax));
}

std::optional<Algorithm> best_of(const Simulated& simulated) {
  const bool has_one =
      !simulated.algorithms.empty() && simulated.algorithms.front().why_not.empty();
  const auto& made = simulated.synthesized;
  if (made && made->why_not.empty() &&
      (!has_one ||
       kSynthesisGainMin * made->call.seconds() < simulated.algorithms.front().call.seconds()))
    return Algorithm::synthesized;
  if (!has_one) return {};
  return simulated.algorithms.front().algorithm;
}

std::optional<SimulatedSynthesis> synthesized_for(Routes& routes, const PlanRequest& request,
                                                  const SimulateOptions& options) {
  const TreeUse use = tree_use(request.collective);
  const Network& network = routes.network();
  const bool is_quick = network.host_count() > 1 && synthesizes_by_default(network) &&
                        (use.inwards || use.outwards) && can_synthesize();
  const bool is_wanted = options.algorithm == Algorithm::automatic && is_quick;
  if (options.algorithm != Algorithm::synthesized && !is_wanted) return {};
  tell(options, Algorithm::synthesized);
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
  Simulated simulated;
  simulated.least_s = least_seconds(network, options.collective, options.root, options.bytes);
  require_short(simulated.least_s);
  simulated.synthesized = synthesized_for(routes, request, options);
  request.forced = options.algorithm;
  if (options.algorithm != Algorithm::synthesized)
    simulated.algorithms =
        simulate_algorithms(routes, request, options.way,
                            [&options](Algorithm algorithm) { tell(options, algorithm); });
  if (options.algorithm == Algorithm::automatic) simulated.best = best_of(simulated);
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

TraceFile::TraceFile(std::string path) : path_(std::move(path)), file_(path_) {
  if (!file_)
    throw Error(ErrorCode::invalid_argument, "simulate",
                fmt::format("cannot write {}: {}", path_, std::strerror(errno)),
                "--trace names a file");
}

void TraceFile::write(Routes& routes, const SimulateOptions& options, const Simulated& simulated) {
  if (!simulated.has_any()) return;
  file_ << "# posted_us arrived_us from to lane op block bytes\n";
  CallToSimulate call = fastest_call(routes, options, simulated);
  if (options.on_begin)
    options.on_begin(fmt::format("the trace of {}", name_of(call.key.algorithm)));
  call.event_by_event = true;
  call.on_message = [this](const SimulatedMessage& message) {
    file_ << fmt::format("{:.6f} {:.6f} {} {} {} {} {} {:.0f}\n", 1e6 * message.posted_s,
                         1e6 * message.arrived_s, message.from, message.to, message.lane,
                         message.added ? "reduce" : "copy", message.block, message.bytes);
  };
  simulate_call(routes, call);
  if (!file_.flush())
    throw Error(ErrorCode::system, "simulate", fmt::format("cannot write {}", path_));
}

}  // namespace ropewalk::tools

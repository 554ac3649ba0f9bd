// What `ropewalk simulate` finds out, and how it is told.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulate/synthesized.h"
#include "simulate/training_step.h"
#include "tools/plot/figure.h"

namespace ropewalk::tools {

struct SimulateOptions {
  Collective collective = Collective::all_reduce;
  std::string network_words = "flat";
  size_t bytes = 0;
  int root = 0;
  Algorithm algorithm = Algorithm::automatic;
  SimulationWay way;
  std::string trace;          // file; empty: none
  std::vector<size_t> sizes;  // that are drawn, ascending; `bytes` is one of them
};

struct Simulated {
  std::string faults;  // empty: none
  double least_s = 0;
  Algorithm planned = Algorithm::ring;
  std::vector<SimulatedAlgorithm> algorithms;  // fastest first
  std::optional<SimulatedSynthesis> synthesized;

  bool has_any() const;
  bool synthesized_is_fastest() const;
};
/// Throws Error.
Simulated simulate_all(Routes& routes, const SimulateOptions& options);
/// Writes the messages of the fastest algorithm, a line for each: times in us, ranks, bytes.
void write_trace(Routes& routes, const SimulateOptions& options, const Simulated& simulated);
/// The fastest, as simulate_all has it: it refers to `simulated`. Requires has_any.
CallToSimulate fastest_call(Routes& routes, const SimulateOptions& options,
                            const Simulated& simulated);
/// Draws times over `options.sizes`, which it simulates; and of the fastest algorithm the schedule
/// and the busiest links.
void plot_simulation(Routes& routes, const SimulateOptions& options, const Simulated& simulated,
                     const PlotFile& file);

std::string simulated_text(const Network& network, const SimulateOptions& options,
                           const Simulated& simulated);
std::string simulated_json(const Network& network, const SimulateOptions& options,
                           const Simulated& simulated);
/// How what was made for the network is, fast or not, and its busiest links; empty where nothing
/// was.
std::string synthesis_text(const Network& network, const SimulatedSynthesis& one, size_t bytes);
std::string synthesis_json(const Network& network, const SimulatedSynthesis& one, size_t bytes);
std::string step_text(const TrainingModel& model, const TrainingStep& step);
std::string step_json(const TrainingModel& model, const TrainingStep& step);

}  // namespace ropewalk::tools

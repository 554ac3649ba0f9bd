// What `ropewalk simulate` finds out, and how it is told.
#pragma once

#include <fstream>
#include <functional>
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
  std::vector<size_t> sizes;  // that are drawn, ascending; `bytes` is one of them
  bool trees = false;         // are told of schedules that are made
  /// Told, before it takes time, of what begins: "ring of 8 MiB".
  std::function<void(const std::string&)> on_begin = {};
};

struct Simulated {
  std::string faults;  // empty: none
  double least_s = 0;
  /// What to choose: the fastest that was simulated, one that is made for the network only where it
  /// gains enough (kSynthesisGainMin). Nothing where one was asked for, or nothing could be
  /// simulated.
  std::optional<Algorithm> best;
  std::vector<SimulatedAlgorithm> algorithms;  // fastest first
  std::optional<SimulatedSynthesis> synthesized;

  bool has_any() const;
  bool synthesized_is_fastest() const;
};
/// Throws Error.
Simulated simulate_all(Routes& routes, const SimulateOptions& options);
/// More than that is not worth simulating, and would not fit the simulator's clock.
inline constexpr double kSimulatedSecondsMax = 1e6;

/// A file for the messages of the fastest algorithm, a line for each.
class TraceFile {
 public:
  /// Throws Error(invalid_argument) where it cannot be written.
  explicit TraceFile(std::string path);
  /// Simulates it again. Nothing where nothing could be simulated. Throws Error.
  void write(Routes& routes, const SimulateOptions& options, const Simulated& simulated);

 private:
  const std::string path_;
  std::ofstream file_;
};
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
/// A line for each tree: its root, its part of the vector, its edges, outwards.
std::string trees_text(const SimulatedSynthesis& one);
std::string step_text(const TrainingModel& model, const TrainingStep& step);
std::string step_json(const TrainingModel& model, const TrainingStep& step);

}  // namespace ropewalk::tools

// What `ropewalk explain` finds out: which algorithm a call would take, how its messages would
// travel, and why. Pure: no job is joined, no memory touched.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/config.h"
#include "job/costs.h"
#include "network/network.h"
#include "planner/planner.h"
#include "simulate/job_network.h"
#include "simulate/synthesized.h"
#include "tools/bench/shape.h"
#include "tools/explain/channel.h"
#include "tools/plot/figure.h"
#include "transport_choice/transport_choice.h"

namespace ropewalk::tools {

struct ExplainOptions {
  BenchKind kind;
  size_t bytes = 1 << 20;
  int ranks = 2;
  int hosts = 1;  // ranks are spread evenly, neighbours together
  int rank = 0;   // whose messages are told
  int root = 0;
  DataType type = DataType::float32;
  ReduceOp op;
  Algorithm algorithm = Algorithm::automatic;
  bool registered = true;
  Config config;                       // as a communicator's would be
  std::vector<TransportOffer> offers;  // what every rank is taken to have
  bool assume = false;                 // that there is what the transport asked for needs
  std::vector<size_t> sizes = {};      // that are drawn, ascending; `bytes` is one of them
  /// As ROPEWALK_NETWORK or --network describes it: then `ranks` and `hosts` are those of it.
  std::optional<Network> described = {};
  /// That of an explanation for the same job, with what was made for it; null: none yet.
  std::shared_ptr<JobNetwork> network = nullptr;
};

struct Explanation {
  size_t bytes = 0;       // cut to whole elements and equal parts
  std::string transport;  // "shm within hosts, tcp between them: ..."
  TransportChoice transports;
  Costs costs;          // its network keeps all schedules
  std::string assumed;  // what is not there, though it is planned for; empty: nothing
  bool forced_by_environment = false;
  PlanRequest request;  // what the planner was asked
  PlanDecision decision;
  std::string why;         // this algorithm
  std::string why_slices;  // this long
  std::vector<Traffic> traffic;
  /// What was made for the network, whether it is chosen or not.
  std::optional<SimulatedSynthesis> synthesized;
};

/// Throws Error(invalid_argument, unavailable) where the library would refuse, too.
Explanation explain(const ExplainOptions& options);

std::string explanation_text(const ExplainOptions& options, const Explanation& explanation);
std::string explanation_json(const ExplainOptions& options, const Explanation& explanation);
/// Draws what the planner predicts over `options.sizes`; and of the algorithm that it chooses the
/// schedule and the busiest links, as they are simulated with the same costs.
void plot_explanation(const ExplainOptions& options, const Explanation& explanation,
                      const PlotFile& file);
/// Of hosts at one switch, or of each rack, with the costs that the planner reckons with.
Network explained_network(const Explanation& explanation);

}  // namespace ropewalk::tools

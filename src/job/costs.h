// What moving and adding bytes costs in this job, and how that is known. Equal on all ranks, since
// the planner must decide alike everywhere.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planner/planner.h"
#include "schedule/cost.h"
#include "transport_choice/transport_choice.h"

namespace ropewalk {

class JobNetwork;      // simulate/job_network.h
struct TuningProfile;  // job/tuning.h

enum class CostSource {
  constant,   // of the transport, where nothing is known: an order of magnitude
  system,     // latency as above, and the rate of the adapters
  described,  // as the network is that ROPEWALK_NETWORK or --network names
  probe,      // measured as the job started (communicator/cost_probe.h, algorithm_probe.h)
  profile,    // that `ropewalk tune` has written (job/tuning.h)
};
std::string_view name_of(CostSource source);
constexpr bool is_measured(CostSource source) {
  return source >= CostSource::probe;
}

struct Costs {
  CostModel model;
  std::vector<int> racks = {};  // by rank, as in a PlanRequest
  CostSource intra = CostSource::constant, inter = CostSource::constant,
             reduce = CostSource::constant;
  std::vector<MeasuredTime> times = {};                    // of whole calls, by ascending bytes
  CostSource calls = CostSource::constant;                 // of `times`, where there are some
  std::shared_ptr<const TuningProfile> profile = nullptr;  // for parts of the job, too
  std::shared_ptr<JobNetwork> network = nullptr;           // as it was described

  bool operator==(const Costs&) const = default;
};

/// What `transports` cost where nothing was measured. Where no two ranks are joined so, the cost
/// counts for nothing.
Costs unmeasured_costs(const TransportChoice& transports);

/// "105 us, then 24.1 MB/s; 4.2 us a message".
std::string text_of(const LinkCost& cost);

}  // namespace ropewalk

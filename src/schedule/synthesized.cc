// Made for the network, as many spanning trees at once as its links allow: Zhao and others,
// "ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics",
// 2024 (arXiv 2402.06787). src/synthesize makes the schedules, and src/simulate tells the planner
// what they take.
#include "ropewalk/status.h"
#include "schedule/builders.h"

namespace ropewalk {
namespace {

Schedule build(const ScheduleKey&, int) {
  throw Error(ErrorCode::unavailable, "build_schedule",
              "a schedule that is made for a network has no builder");
}

}  // namespace

AlgorithmDescriptor synthesized_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, reduce_scatter, all_gather, broadcast, reduce},
          .build = build,
          .bound = [](const ScheduleKey&) { return Bound{}; },
          .predict_s = [](const CostTerms&, Collective) { return 0.0; },
          .list_order_credits = 1,
          .needs_network = true};
}

}  // namespace ropewalk

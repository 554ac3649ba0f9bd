// A training step: a backward pass makes buckets of gradients ready, each of which is averaged by
// an all_reduce as soon as it is ready and the one before has ended.
#pragma once

#include <string_view>
#include <vector>

#include "network/network.h"
#include "schedule/schedule.h"

namespace ropewalk {

struct TrainingModel {
  struct Bucket {
    double ready_s = 0;  // from the start of the backward pass
    size_t bytes = 0;
  };
  double backward_s = 0;
  std::vector<Bucket> buckets;  // in the order in which they get ready
};
/// {"backward_ms": 120, "buckets": [{"ready_ms": 30, "bytes": 26214400}]}. Throws
/// Error(invalid_argument) that names line and field.
TrainingModel parse_training_model(std::string_view text);

struct TrainingStep {
  struct Call {
    Algorithm algorithm = Algorithm::ring;
    double seconds = 0;
    bool is_simulated = false;  // else it is too long for that, and its closed form counts
  };
  double seconds = 0;    // of the backward pass and what is left to send after it
  double exposed_s = 0;  // what is left
  double communicating_s = 0;
  std::vector<Call> calls;  // of each bucket
};
/// Each bucket by what a job there would choose, which may be a schedule that is made for the
/// network, or by `forced`. Throws Error where that cannot be.
TrainingStep simulate_step(const Network& network, const TrainingModel& model,
                           Algorithm forced = Algorithm::automatic);

}  // namespace ropewalk

// Sends that wait, so that their rank does not get ahead of the others: Schedule::steps_ahead_max.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/steps.h"

namespace ropewalk {

class AheadLimit {
 public:
  /// `schedules`: by rank; null where there is no limit. `steps` outlives this.
  AheadLimit(const SimulatedSteps& steps, const std::vector<Schedule>* schedules) : in_(steps) {
    if (schedules == nullptr) return;
    has_ended_.resize(steps.steps.size());
    for (size_t rank = 0; rank < schedules->size(); ++rank)
      ranks_.push_back(
          {steps.step_first[rank], static_cast<uint32_t>((*schedules)[rank].steps_ahead_max), {}});
  }

  /// Whether the step may not begin. It is told of by `end`.
  bool holds_back(uint32_t step) {
    if (ranks_.empty()) return false;
    RankState& rank = ranks_[in_.rank_of[step]];
    if (rank.steps_max == 0 || step < rank.oldest + rank.steps_max) return false;
    rank.held_back.push_back(step);
    return true;
  }
  /// Adds those that may begin to `free`, and others.
  void end(uint32_t step, std::vector<uint32_t>& free) {
    if (ranks_.empty()) return;
    has_ended_[step] = true;
    const uint32_t number = in_.rank_of[step];
    RankState& rank = ranks_[number];
    if (step != rank.oldest) return;
    while (rank.oldest < in_.step_first[number + 1] && has_ended_[rank.oldest]) ++rank.oldest;
    free.insert(free.end(), rank.held_back.begin(), rank.held_back.end());
    rank.held_back.clear();
  }

 private:
  struct RankState {
    uint32_t oldest, steps_max;
    std::vector<uint32_t> held_back;
  };

  const SimulatedSteps& in_;
  std::vector<bool> has_ended_;  // by step
  std::vector<RankState> ranks_;
};

}  // namespace ropewalk

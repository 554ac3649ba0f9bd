// Tells when a simulation repeats itself, and adds up the rounds that were left out (rounds.h).
//
// From equal states the same follows. Two states count as equal where all that is under way is,
// with times counted from now and steps from the round that rank 0 has come to; what has ended, and
// what nobody has looked at yet, does not matter as long as it lies in the same repetition of the
// schedule. If state b is equal to an earlier a, k rounds and t later, then the state another k
// rounds later is so too, as long as rounds last. So m times k rounds more take m times t more, and
// what comes after them is the same.
#pragma once

#include <cstdint>
#include <vector>

#include "simulate/state.h"
#include "simulate/steps.h"

namespace ropewalk {

class Repetition {
 public:
  /// `grants`: blocks are granted before they are sent.
  Repetition(const SimulatedSteps& steps, uint32_t slices, bool grants)
      : in_(steps), slices_(slices), grants_(grants) {
    start_next();
  }

  /// Between two events. Adds to what is counted in `state`, not to its time, what the rounds that
  /// were left out come to.
  void look(SimulationState& state) {
    if (marker_ < until_ && state.done[marker_] == slices_) look_closer(state);
  }
  /// What they take.
  int64_t skipped_ps() const { return skipped_ps_; }
  /// Some were left out in vain: what they take is not known.
  bool has_failed() const { return has_failed_; }

 private:
  struct Seen {
    uint32_t base = 0;
    std::vector<int64_t> state;
    int64_t now_ps = 0;
    uint64_t messages = 0;
    std::vector<CpuState> cpus;
    std::vector<LinkState> links;
  };

  void start_next();
  void look_closer(SimulationState& state);
  bool describe(const SimulationState& state, std::vector<int64_t>& out);
  bool describe_rank(const SimulationState& state, uint32_t rank, std::vector<int64_t>& out);
  void describe_events(const SimulationState& state, std::vector<int64_t>& out);
  void skip(SimulationState& state);

  const SimulatedSteps& in_;
  const uint32_t slices_;
  const bool grants_;
  size_t number_ = 0;  // of the repetition at hand, from 1
  RepeatedRounds rounds_;
  uint32_t base_ = 0;                    // of rank 0: the round that it has come to
  uint32_t marker_ = 0, until_ = 0;      // the step of rank 0 that ends it; the end of all
  std::vector<uint32_t> lowest_;         // by rank: step that has not ended
  std::vector<uint32_t> streams_first_;  // by rank: into SimulatedSteps::streams
  Seen seen_;
  uint32_t looks_ = 0;
  int64_t skipped_ps_ = 0;
  bool has_failed_ = false;
};

}  // namespace ropewalk

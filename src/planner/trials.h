// What a kind of call that comes again and again tries beside the planner's choice, and in which of
// its runs. Pure: equal runs and equal times give equal choices on all ranks.
//
// Some runs of the planner's choice are timed. Where they took longer than predicted, whatever was
// predicted to take less than that has some runs of its own, and the fastest is kept. Before each
// step so many runs go by that all steps together take at most 2 % of the time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/planner.h"

namespace ropewalk {

struct TrialChoice {
  Algorithm algorithm = Algorithm::ring;
  size_t slice_bytes = 0;
  double predicted_s = 0;
};

/// Threads: one at a time.
class Trials {
 public:
  static constexpr size_t kTimedRuns = 4;  // the last of each choice's
  using Times = std::array<double, kTimedRuns>;

  /// The planner's choice, and others, in the order in which to try them. `agreement_s`: how long
  /// it takes the ranks to tell each other their times.
  Trials(std::vector<TrialChoice> choices, double agreement_s);

  struct Run {
    TrialChoice choice;
    bool is_timed = false;
    bool agrees = false;  // once it has started, ranks tell each other how long the timed runs took
  };
  /// Before `next_run` where the times are needed: in seconds, equal on all ranks, of the timed
  /// runs, and of what had to be done beside runs. A time that is not positive, or longer than a
  /// day, is not known, and ends the trials.
  bool needs_times() const { return !is_over() && run_ == times_at_; }
  void set_times(const Times& times, double beside_s = 0);
  Run next_run();

  /// Nothing will be timed any more.
  bool is_over() const { return tried_ == choices_.size(); }
  const TrialChoice& best() const { return choices_[best_]; }
  /// What the best took, and what the planner's choice took; 0: not known yet.
  double best_s() const { return best_s_; }
  double planned_s() const { return planned_s_; }

 private:
  /// The next choice that is worth it, and when.
  void schedule();

  std::vector<TrialChoice> choices_;
  const double agreement_s_;
  size_t best_ = 0, tried_ = 0;
  double best_s_ = 0, planned_s_ = 0;
  double spent_s_ = 0;
  uint64_t run_ = 0, begin_ = 0, times_at_ = 0;
};

}  // namespace ropewalk

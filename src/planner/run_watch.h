// Whether the runs of a kind of call take much longer than they did, as where a link has become
// slower: a few of many runs are timed. Pure: equal runs give equal answers on all ranks as to
// which are timed.
#pragma once

#include <cstdint>

#include "planner/trials.h"

namespace ropewalk {

/// Threads: one at a time.
class RunWatch {
 public:
  /// `run_s`: how long a run is predicted to take; `agreement_s`: how long it takes the ranks to
  /// tell each other their times, which is at most a hundredth of the time between.
  RunWatch(double run_s, double agreement_s);

  struct Run {
    bool is_timed = false;
    bool agrees = false;  // once it has started, ranks tell each other how long the timed runs took
  };
  Run next_run();

  /// What a run took before this watched.
  void set_usual(double seconds) { usual_s_ = seconds; }
  /// Of the timed runs of a cycle, in seconds. Where one is not positive nothing is known.
  void set_times(const Trials::Times& times);
  /// Runs take several times as long as is usual, and have done so for a while.
  bool is_slow() const { return slow_cycles_ > 1; }
  /// What a run took when it was fast; 0: not known yet. What the last took.
  double usual_s() const { return usual_s_; }
  double last_s() const { return last_s_; }

 private:
  const uint64_t idle_, cycle_;  // runs: before any is timed, and in all
  uint64_t run_ = 0;
  double usual_s_ = 0, last_s_ = 0;
  int slow_cycles_ = 0;  // the last ones
};

}  // namespace ropewalk

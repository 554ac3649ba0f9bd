#include "planner/trials.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace ropewalk {
namespace {

constexpr double kShare = 0.02;     // of the time, for all trials
constexpr uint64_t kWarmUps = 8;    // runs before anything is timed
constexpr uint64_t kTrialRuns = 8;  // of each choice; the first touch memory and make links
/// Until timed runs have ended on every rank that waits now and then, and until all know the times.
/// Only who has more runs under way than the second has to wait for them.
constexpr uint64_t kRunsUntilEnded = 64, kRunsUntilKnown = 1024;
/// Worth trying where the planner's choice takes so many times as long as predicted, and kept where
/// it takes that part of the best time.
constexpr double kSlower = 1.1, kWorthChanging = 0.95;
constexpr double kTimeMax_s = 86400;

uint64_t runs_for(double cost_s, double run_s) {
  const double runs = std::ceil(cost_s / (kShare * run_s));
  return static_cast<uint64_t>(std::clamp(runs, 0.0, 1e15));
}

}  // namespace

Trials::Trials(std::vector<TrialChoice> choices, double agreement_s)
    : choices_(std::move(choices)), agreement_s_(agreement_s) {
  assert(!choices_.empty());
  begin_ = std::max(kWarmUps, runs_for(agreement_s, std::max(choices_[0].predicted_s, 1e-9)));
  times_at_ = begin_ + kTrialRuns + kRunsUntilEnded + kRunsUntilKnown;
  if (choices_.size() == 1) tried_ = 1;
}

Trials::Run Trials::next_run() {
  assert(!needs_times());
  const uint64_t run = run_++;
  if (is_over()) return {best()};
  const bool is_trial = run >= begin_ && run < begin_ + kTrialRuns;
  return {is_trial ? choices_[tried_] : best(), is_trial && run >= begin_ + kTrialRuns - kTimedRuns,
          run == begin_ + kTrialRuns + kRunsUntilEnded};
}

void Trials::set_times(const Times& times, double beside_s) {
  assert(needs_times() && !is_over());
  const auto is_unknown = [](double s) { return !(s > 0 && s < kTimeMax_s); };
  if (std::ranges::any_of(times, is_unknown) || !(beside_s >= 0 && beside_s < kTimeMax_s)) {
    tried_ = choices_.size();
    return;
  }
  Times sorted = times;
  std::ranges::sort(sorted);
  const double seconds = sorted[1];  // noise adds; the first of these may have been lucky
  spent_s_ += agreement_s_ + beside_s;
  if (tried_ == 0) {
    planned_s_ = best_s_ = seconds;
  } else {
    for (const double s : times) spent_s_ += kTrialRuns / kTimedRuns * std::max(s - best_s_, 0.0);
    if (seconds <= kWorthChanging * best_s_) {
      best_ = tried_;
      best_s_ = seconds;
    }
  }
  schedule();
}

void Trials::schedule() {
  const bool is_as_predicted = planned_s_ <= kSlower * choices_[0].predicted_s;
  do ++tried_;
  while (tried_ < choices_.size() &&
         (is_as_predicted || choices_[tried_].predicted_s > kWorthChanging * planned_s_));
  if (is_over()) return;
  // It may well take twice as long.
  const double cost_s = spent_s_ + agreement_s_ + kTrialRuns * best_s_;
  begin_ = std::max(run_, runs_for(cost_s, best_s_));
  times_at_ = begin_ + kTrialRuns + kRunsUntilEnded + kRunsUntilKnown;
}

}  // namespace ropewalk

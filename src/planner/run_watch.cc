#include "planner/run_watch.h"

#include <algorithm>
#include <cmath>

namespace ropewalk {
namespace {

constexpr uint64_t kIdleMin = 64;
/// Until timed runs have ended on every rank that waits now and then.
constexpr uint64_t kRunsUntilTimed = 64;
constexpr double kWatchShare = 0.01;  // of the time, for telling each other
constexpr double kSlow = 3;           // times as long as is usual: noise, and other jobs, are less
/// Timed runs that took so long together have been slow for a while.
constexpr double kWhile_s = 2;

uint64_t idle_runs(double run_s, double agreement_s) {
  const double runs = std::ceil(agreement_s / (kWatchShare * std::max(run_s, 1e-9)));
  return static_cast<uint64_t>(std::clamp(runs, static_cast<double>(kIdleMin), 1e15));
}

}  // namespace

RunWatch::RunWatch(double run_s, double agreement_s)
    : idle_(idle_runs(run_s, agreement_s)), cycle_(idle_ + Trials::kTimedRuns + kRunsUntilTimed) {}

RunWatch::Run RunWatch::next_run() {
  const uint64_t at = run_++ % cycle_;
  return {at >= idle_ && at < idle_ + Trials::kTimedRuns, at == cycle_ - 1};
}

void RunWatch::set_times(const Trials::Times& times) {
  if (std::ranges::any_of(times, [](double s) { return !(s > 0); })) return;
  Trials::Times sorted = times;
  std::ranges::sort(sorted);
  last_s_ = sorted[1];  // noise adds; the first of these may have been lucky
  if (usual_s_ == 0) usual_s_ = last_s_;
  if (sorted[0] <= kSlow * usual_s_) {
    usual_s_ = std::min(usual_s_, last_s_);
    slow_cycles_ = 0;
    return;
  }
  double sum_s = 0;
  for (const double s : times) sum_s += s;
  slow_cycles_ += sum_s >= kWhile_s ? 2 : 1;
}

}  // namespace ropewalk

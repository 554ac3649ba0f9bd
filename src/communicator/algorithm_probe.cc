#include "communicator/algorithm_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "schedule/algorithm.h"
#include "schedule/builders.h"

namespace ropewalk {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::array<size_t, 3> kBytes = {8, 4 << 10, 32 << 10};
constexpr size_t kCandidates = 4;
/// A candidate that is predicted to take so many times as long as the best is not tried.
constexpr double kTooSlow = 4;
/// The least counts: another process may have held one batch up. In a batch no call ends before all
/// ranks have begun it, so that the mean is the time of one.
constexpr int kBatches = 3, kCalls = 2;
/// Nothing is tried that would, as predicted, take longer than this in all.
constexpr double kBudget_s = 25e-3;
/// With more ranks an algorithm in which each talks to most others is not tried: it would link them
/// for that alone.
constexpr int kLinkedRanks = 16;

/// The fastest, as predicted, as far as `left_s` reaches.
std::vector<Algorithm> worth_trying(const PlanDecision& decision, int ranks, double left_s) {
  std::vector<Algorithm> tried;
  for (const Candidate& candidate : decision.candidates) {
    const ScheduleKey key{.algorithm = candidate.algorithm, .ranks = ranks, .root = 0, .hosts = {}};
    if (ranks > kLinkedRanks && bound_of(key).rounds < ceil_log2(ranks)) continue;
    left_s -= (1 + kBatches * kCalls) * candidate.predicted_us * 1e-6;
    if (!candidate.eligible || tried.size() == kCandidates || left_s < 0 ||
        candidate.predicted_us > kTooSlow * decision.predicted_us)
      break;
    tried.push_back(candidate.algorithm);
  }
  return tried;
}

double time_s(Communicator& communicator, const Call& call) {
  Plan plan = communicator.plan(call);
  plan.run();  // links the ranks
  double least_s = 1e9;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = SteadyClock::now();
    for (int i = 0; i < kCalls; ++i) plan.run();
    least_s = std::min(least_s, std::chrono::duration<double>(SteadyClock::now() - begin).count());
  }
  return least_s / kCalls;
}

}  // namespace

std::vector<MeasuredTime> time_short_calls(Communicator& communicator, const Planning& plan) {
  const auto begin = SteadyClock::now();
  auto buffer = communicator.allocate<float>(kBytes.back() / sizeof(float));
  std::vector<MeasuredTime> times;
  double spent_s = 0;  // by the slowest rank
  for (const size_t bytes : kBytes) {
    Call call = Call::all_reduce(buffer.span().first(bytes / sizeof(float)));
    const std::vector<Algorithm> tried =
        worth_trying(plan(call, times), communicator.size(), kBudget_s - spent_s);
    if (tried.size() < 2) break;
    for (const Algorithm algorithm : tried) {
      if (spent_s > kBudget_s) return times;
      call.algorithm = algorithm;
      std::array<double, 2> slowest_s{time_s(communicator, call), 0};
      slowest_s[1] = std::chrono::duration<double>(SteadyClock::now() - begin).count();
      communicator.all_reduce(std::span(slowest_s), kMax);
      spent_s = slowest_s[1];
      times.push_back({Collective::all_reduce, algorithm, bytes, slowest_s[0]});
    }
  }
  return times;
}

}  // namespace ropewalk

#include "communicator/algorithm_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <span>

#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::array<size_t, 3> kBytes = {8, 4 << 10, 32 << 10};
constexpr size_t kCandidates = 4;
/// A candidate that is predicted to take so many times as long as the best is not tried.
constexpr double kTooSlow = 4;
/// As a benchmark does: a barrier, then a call, which takes as long as on its slowest rank. The
/// median counts: another process may have held one up.
constexpr int kCalls = 5;
/// Nothing is tried once so much has been spent, nor what would, as predicted, take longer; but for
/// three at first, unless links are far: what a call takes is a guess until then.
constexpr double kBudget_s = 25e-3;
constexpr size_t kTriedAnyway = 3;
constexpr double kFar_us = 5000;

/// The fastest, as predicted, as far as `left_s` reaches; some anyway.
std::vector<Algorithm> worth_trying(const PlanDecision& decision, double left_s, size_t anyway) {
  std::vector<Algorithm> tried;
  for (const Candidate& candidate : decision.candidates) {
    if (candidate.partners > kPartnersFew) continue;
    left_s -= (1 + 2 * kCalls) * candidate.predicted_us * 1e-6;  // and as many barriers
    const bool may = left_s >= 0 || (tried.size() < anyway && candidate.predicted_us < kFar_us);
    if (!candidate.eligible || tried.size() == kCandidates || !may ||
        candidate.predicted_us > kTooSlow * decision.predicted_us)
      break;
    tried.push_back(candidate.algorithm);
  }
  return tried;
}

/// On this rank, of each call; and how long all has taken since `begin`.
using Times = std::array<double, kCalls + 1>;

Times time_calls(Communicator& communicator, const Call& call, SteadyClock::time_point begin) {
  const auto seconds_since = [](SteadyClock::time_point then) {
    return std::chrono::duration<double>(SteadyClock::now() - then).count();
  };
  Plan plan = communicator.plan(call);
  plan.run();  // links the ranks
  Times times{};
  for (int i = 0; i < kCalls; ++i) {
    communicator.barrier();
    const auto called = SteadyClock::now();
    plan.run();
    times[static_cast<size_t>(i)] = seconds_since(called);
  }
  times.back() = seconds_since(begin);
  return times;
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
        worth_trying(plan(call, times), kBudget_s - spent_s, times.empty() ? kTriedAnyway : 0);
    if (tried.size() < 2) break;
    for (const Algorithm algorithm : tried) {
      if (spent_s > kBudget_s && times.size() >= kTriedAnyway) return times;
      call.algorithm = algorithm;
      Times slowest_s = time_calls(communicator, call, begin);
      communicator.all_reduce(std::span(slowest_s), kMax);
      spent_s = slowest_s.back();
      std::sort(slowest_s.begin(), slowest_s.end() - 1);
      times.push_back({Collective::all_reduce, algorithm, bytes, slowest_s[kCalls / 2]});
    }
  }
  return times;
}

}  // namespace ropewalk

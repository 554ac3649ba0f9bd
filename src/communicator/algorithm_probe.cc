#include "communicator/algorithm_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Length {
  Collective collective;
  size_t bytes;
};
/// The most important first. A reduce_scatter tells of an all_gather, too: its messages are those
/// of most algorithms in the other direction.
constexpr std::array<Length, 5> kLengths = {{{Collective::all_reduce, 8},
                                             {Collective::all_reduce, 4 << 10},
                                             {Collective::reduce_scatter, 4 << 10},
                                             {Collective::all_reduce, 16 << 10},
                                             {Collective::all_reduce, 32 << 10}}};
constexpr size_t kProbedBytesMax = 32 << 10;
constexpr size_t kCandidates = 4;  // of the shortest calls, of longer ones one less
/// A candidate that is predicted to take so many times as long as the best is not tried.
constexpr double kTooSlow = 4;
/// Candidates take turns of some calls, so that whatever disturbs one concerns all alike. Calls
/// take from the mean of the ranks' beginnings, when they have ended the ones before, to that of
/// their ends. The median of turns counts, or of an even number the lesser one: another process may
/// have held one up.
constexpr int kCalls = 3;
/// Of longer calls one is a turn: they are less easily disturbed.
constexpr double kLong_us = 500;
constexpr size_t kTurns = 2, kTurnsMax = 16;  // after each kTurns ranks tell each other the times
/// More of them only within so long.
constexpr double kContest_s = 3e-3;
/// A candidate that took so many times as long as the best has no further turn.
constexpr double kHopeless = 1.6;
/// Nothing is tried once so much has been spent, nor what would, as predicted, take longer; but for
/// three at first, unless links are far: what a call takes is a guess until then.
constexpr double kBudget_s = 28e-3;
constexpr size_t kTriedAnyway = 3;
constexpr double kFar_us = 5000;

int calls_per_turn(const PlanDecision& decision) {
  return decision.predicted_us > kLong_us ? 1 : kCalls;
}

/// The fastest, as predicted, as far as `left_s` reaches; some anyway.
std::vector<Candidate> worth_trying(const PlanDecision& decision, double left_s, size_t anyway,
                                    size_t most) {
  std::vector<Candidate> tried;
  for (const Candidate& candidate : decision.candidates) {
    if (candidate.partners > kPartnersFew) continue;
    left_s -= (1 + calls_per_turn(decision) * kTurns) * candidate.predicted_us * 1e-6;
    const bool may = left_s >= 0 || (tried.size() < anyway && candidate.predicted_us < kFar_us);
    if (!candidate.eligible || tried.size() == most || !may ||
        candidate.predicted_us > kTooSlow * decision.predicted_us)
      break;
    tried.push_back(candidate);
  }
  return tried;
}

/// What is known of an algorithm's calls of one length.
struct Contender {
  Candidate candidate;
  Plan plan;
  std::vector<double> seconds = {};  // by turn

  /// Not less than its bytes take at the link's rate: what a limiter has saved up meanwhile does
  /// not last.
  double median_s() {
    std::ranges::sort(seconds);
    return std::max(seconds[(seconds.size() - 1) / 2], 1e-6 * candidate.link_us);
  }
};

class Contest {
 public:
  Contest(Communicator& communicator, SteadyClock::time_point begin, int calls)
      : communicator_(communicator), begin_(begin), calls_(calls) {}

  void enter(Call call, const Candidate& candidate) {
    call.algorithm = candidate.algorithm;
    contenders_.push_back({candidate, communicator_.plan(call)});
    contenders_.back().plan.run();  // links the ranks
  }
  /// Of all contenders.
  void run_turns() {
    std::vector<double> seconds;
    double begun_s = seconds_since_begin();
    for (size_t i = 0; i < kTurns * contenders_.size(); ++i) {
      for (int call = 0; call < calls_; ++call) contenders_[i % contenders_.size()].plan.run();
      const double ended_s = seconds_since_begin();
      seconds.push_back((ended_s - std::exchange(begun_s, ended_s)) / calls_);
    }
    seconds.push_back(begun_s);
    communicator_.all_reduce(std::span(seconds), kAvg);
    for (size_t i = 0; i < kTurns * contenders_.size(); ++i)
      contenders_[i % contenders_.size()].seconds.push_back(seconds[i]);
    spent_s_ = seconds.back();
    turns_ += kTurns;
  }
  size_t turns() const { return turns_; }
  /// Since `begin`; mean of ranks.
  double spent_s() const { return spent_s_; }

  /// Whether several are left.
  bool drop_hopeless() {
    double best_s = std::numeric_limits<double>::infinity();
    for (Contender& contender : contenders_) best_s = std::min(best_s, contender.median_s());
    const auto out =
        std::stable_partition(contenders_.begin(), contenders_.end(),
                              [&](Contender& c) { return c.median_s() <= kHopeless * best_s; });
    std::move(out, contenders_.end(), std::back_inserter(dropped_));
    contenders_.erase(out, contenders_.end());
    return contenders_.size() > 1;
  }

  void append_times(Collective collective, size_t bytes, std::vector<MeasuredTime>& times) {
    for (auto* list : {&contenders_, &dropped_})
      for (Contender& contender : *list)
        times.push_back({collective, contender.candidate.algorithm, bytes, contender.median_s()});
  }

 private:
  double seconds_since_begin() const {
    return std::chrono::duration<double>(SteadyClock::now() - begin_).count();
  }

  Communicator& communicator_;
  const SteadyClock::time_point begin_;
  const int calls_;  // a turn
  std::vector<Contender> contenders_, dropped_;
  double spent_s_ = 0;
  size_t turns_ = 0;
};

}  // namespace

std::vector<MeasuredTime> time_short_calls(Communicator& communicator, const Planning& plan) {
  const auto begin = SteadyClock::now();
  auto in = communicator.allocate<float>(kProbedBytesMax / sizeof(float));
  auto out = communicator.allocate<float>(kProbedBytesMax / sizeof(float));
  const size_t ranks = static_cast<size_t>(communicator.size());
  Call spending = Call::all_reduce(in);
  spending.algorithm = Algorithm::ring;
  std::vector<MeasuredTime> times;
  double spent_s = 0;
  for (const Length& length : kLengths) {
    const bool parts = length.collective == Collective::reduce_scatter;
    const size_t part = length.bytes / sizeof(float) / (parts ? ranks : 1);
    const size_t whole = parts ? part * ranks : part;
    if (part == 0) continue;
    const auto from = in.span().first(whole);
    const Call call =
        parts ? Call::reduce_scatter(from, out.span().first(part)) : Call::all_reduce(from);
    const PlanDecision decision = plan(call, times);
    const std::vector<Candidate> tried =
        worth_trying(decision, kBudget_s - spent_s, times.empty() ? kTriedAnyway : 0,
                     times.empty() ? kCandidates : kCandidates - 1);
    if (tried.size() < 2) continue;
    Contest contest(communicator, begin, calls_per_turn(decision));
    for (const Candidate& candidate : tried) contest.enter(call, candidate);
    const double enough_s = spent_s + kContest_s;
    // Spends what a limiter of a link lets pass after a pause.
    if (!times.empty()) communicator.run(spending);
    do contest.run_turns();
    while (contest.drop_hopeless() && contest.spent_s() < std::min(enough_s, kBudget_s) &&
           contest.turns() < kTurnsMax);
    spent_s = contest.spent_s();
    contest.append_times(length.collective, whole * sizeof(float), times);
    std::ranges::stable_sort(times, {}, &MeasuredTime::bytes);
  }
  return times;
}

}  // namespace ropewalk

// Plans that learn: calls of one kind that come again and again, in jobs on several hosts, try what
// else might be faster than the planner's choice (planner/trials.h), and keep what is.
//
// Of one kind are calls of one collective, type, op and length. All ranks start their collectives
// in the same order, so that they count the runs of a kind alike: nothing is agreed upon, except
// how long the timed runs took. For that the ranks all_reduce the times, right behind a run of the
// kind. A run takes as long as on the rank that takes the least: on the others it contains the wait
// for the last one to begin. So a kind is a collective in which no rank ends before all have begun,
// and whose messages are longer than those that wait at a rank that has not begun.
//
// Results must not depend on timing. Where the order of additions shows in the result, only slices
// of other lengths are tried; another algorithm adds in another order.
//
// Once nothing is left to try, a few of many runs are timed and told likewise, for rank 0 to warn
// where they take several times as long as they did: a link may have changed.
//
// What the planner says of a kind is found out as an operation is prepared, outside the engine's
// lock: on a network that is described it may simulate. That is equal on all ranks; the kind counts
// from its first start on.
//
// A start blocks nobody, unless more than 1,000 calls of its kind are under way: then it may wait
// until the ranks have told each other their times.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "engine/operation.h"
#include "planner/run_watch.h"
#include "planner/trials.h"

namespace ropewalk {

/// Ranks tell each other how long timed runs took.
struct RunTimes {
  /// And behind them what was done beside the runs, with its sign turned: the least of
  /// all ranks.
  std::array<double, Trials::kTimedRuns + 1> seconds{};
  std::shared_ptr<Group> all_reduce;
  bool is_unread = false;  // of runs that are watched, on rank 0
};

/// Calls that count as one kind. Under the engine's lock, once it is known to the tuner.
struct TunedKind {
  /// `agreement`: how RunTimes are all_reduced.
  TunedKind(const std::vector<TrialChoice>& choices, const PlanDecision& agreement)
      : trials(choices, 1e-6 * agreement.predicted_us),
        watch(choices[0].predicted_s, 1e-6 * agreement.predicted_us),
        predicted_s(choices[0].predicted_s),
        agreement_algorithm(agreement.algorithm),
        agreement_slice_bytes(agreement.slice_bytes) {}

  Trials trials;
  RunWatch watch;  // once those are over
  const double predicted_s;
  const Algorithm agreement_algorithm;
  const size_t agreement_slice_bytes;
  bool is_known = false;  // one of it has been started
  bool agrees = false;    // behind the run that is being started
  bool is_told = false;   // that it is slow
  std::array<std::shared_ptr<RunTime>, Trials::kTimedRuns> timed;
  size_t timed_count = 0;  // of those, since the last agreement
  double rebinding_s = 0;  // the same
  /// As many as there are under way; who starts the next does not wait for the last.
  std::vector<std::unique_ptr<RunTimes>> agreements;
  RunTimes* last = nullptr;  // of them; null: there was none
  int unread = 0;            // of them
};

/// Owned by a communicator, and outlives the operations that it tunes. Threads: under the engine's
/// lock, except `attach`.
class AutoTuner : public RunTuner {
 public:
  /// Of the communicator. The last two run under the engine's lock, and `plan` never does: it may
  /// take long.
  struct Parts {
    int rank = 0, ranks = 1;
    const Clock* clock = nullptr;                              // the engine's
    std::function<void(const std::function<void()>&)> locked;  // under the engine's lock
    std::function<PlanDecision(const Call&)> plan;
    std::function<void(Operation&, Algorithm, size_t slice_bytes)> rebind;
    std::function<std::shared_ptr<Operation>(const Call&, Algorithm, size_t slice_bytes)> prepare;
  };
  explicit AutoTuner(Parts parts) : parts_(std::move(parts)) {}

  /// From now on the runs of `group` count, if it has one collective, or several that run as one,
  /// beside any messages: ranks group alike. Not under the engine's lock.
  void attach(Group& group);
  /// Gives back what agreements hold. Nothing starts any more.
  void clear();
  /// What has been learned of such a call; else `planned`.
  PlanDecision best_for(const Call& call, PlanDecision planned) const;

  void before_start(Operation& operation) override;
  std::shared_ptr<Group> after_start(Operation& operation) override;
  std::shared_ptr<Group> awaited(const Operation& operation) override;

 private:
  /// What is alike in calls that count as one kind; equal on all ranks.
  struct KindKey {
    Collective collective;
    DataType type;
    ReduceKind op;
    size_t bytes;
    auto operator<=>(const KindKey&) const = default;
  };
  KindKey key_of(const Call& call) const;
  /// Of which `operation` is; its own where none of it has been started yet.
  TunedKind& kind_of(const Operation& operation) const;
  /// Null where none of it has been started yet.
  std::shared_ptr<TunedKind> find(const Call& call) const;
  /// What the planner says of it: equal on all ranks.
  std::shared_ptr<TunedKind> make(const Call& call) const;
  std::vector<TrialChoice> choices_for(const Call& call) const;
  /// From its first start on `operation` is of the kind that others are of, too. False where there
  /// are too many kinds.
  bool join_kind(Operation& operation);
  void time(Operation& operation, TunedKind& kind);
  RunTimes& idle_agreement(TunedKind& kind) const;
  void end_agreement(TunedKind& kind, const Call& call);
  void end_watched(TunedKind& kind, const Operation& operation);
  void warn_of(TunedKind& kind, const Operation& operation);

  const Parts parts_;
  std::map<KindKey, std::shared_ptr<TunedKind>> kinds_;
  int64_t warned_ns_ = 0;  // when last; 0: never
};

}  // namespace ropewalk

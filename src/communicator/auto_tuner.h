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
#include "planner/trials.h"

namespace ropewalk {

/// Owned by a communicator, and outlives the operations that it tunes. Threads: under the engine's
/// lock, except `attach`.
class AutoTuner : public RunTuner {
 public:
  /// Of the communicator. The last two run under the engine's lock.
  struct Parts {
    int rank = 0, ranks = 1;
    const Clock* clock = nullptr;  // the engine's
    std::function<PlanDecision(const Call&)> plan;
    std::function<void(Operation&, Algorithm, size_t slice_bytes)> rebind;
    std::function<std::shared_ptr<Operation>(const Call&, Algorithm, size_t slice_bytes)> prepare;
  };
  explicit AutoTuner(Parts parts) : parts_(std::move(parts)) {}

  /// From now on the runs of `group` count, if it has one collective, or several that run as one,
  /// beside any messages: ranks group alike.
  void attach(Group& group);
  /// Gives back what agreements hold. Nothing starts any more.
  void clear() { kinds_.clear(); }
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
  struct Kind {
    explicit Kind(std::vector<TrialChoice> choices, double agreement_s)
        : trials(std::move(choices), agreement_s) {}

    Trials trials;
    bool agrees = false;                                 // behind the run that is being started
    std::vector<std::shared_ptr<RunTime>> timed;         // since the last agreement
    double rebinding_s = 0;                              // the same
    std::array<double, Trials::kTimedRuns + 1> times{};  // those, and -rebinding_s
    std::shared_ptr<Group> agreement;                    // an all_reduce of `times`
  };

  KindKey key_of(const Call& call) const;
  /// Null where it has not been started yet, or nothing is to be learned of it.
  Kind* find(const Call& call) const;
  /// Of a call that was started as often on all ranks.
  Kind* find_or_make(const Call& call);
  std::vector<TrialChoice> choices_for(const Call& call) const;
  void end_agreement(Kind& kind, const Call& call);

  const Parts parts_;
  std::map<KindKey, std::unique_ptr<Kind>> kinds_;
};

}  // namespace ropewalk

#include "communicator/auto_tuner.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "base/log.h"
#include "engine/layout.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

constexpr size_t kKindsMax = 64;             // more are not tuned
constexpr size_t kAlgorithmsMax = 3;         // to try, beside the planner's choice
constexpr size_t kUnwatchedBytesMax = 4096;  // of a rank; such calls the probe times
constexpr size_t kSliceMin = 16 << 10;
constexpr double kUnknown_s = -1;  // of a run that has not ended

/// No rank ends before all have begun, and all know how long the vector is.
bool can_be_tuned(const Call& call, int ranks) {
  using enum Collective;
  switch (call.collective) {
    case all_reduce:
    case reduce_scatter:
    case all_gather:
      break;
    case all_to_all:
      if (!call.counts.empty()) return false;
      break;
    default:
      return false;
  }
  return call.algorithm == Algorithm::automatic && call.op.kind != ReduceKind::user &&
         total_bytes(call, ranks) / static_cast<size_t>(ranks) > kUnwatchedBytesMax;
}

/// Every order of the additions gives the same bits.
bool may_reorder(const Call& call, int ranks) {
  if (!traits_of(call.collective).reduces || !is_floating(call.type)) return true;
  const ReduceKind op = call.op.kind;
  return ranks == 2 && (op == ReduceKind::sum || op == ReduceKind::avg || op == ReduceKind::prod);
}

}  // namespace

void AutoTuner::attach(Group& group) {
  Operation* only = nullptr;
  for (const auto& part : group.parts()) {
    if (part->is_point_to_point()) continue;
    if (only != nullptr) return;
    only = part.get();
  }
  if (only != nullptr && can_be_tuned(only->call, parts_.ranks)) only->tuner = this;
}

PlanDecision AutoTuner::best_for(const Call& call, PlanDecision planned) const {
  if (!can_be_tuned(call, parts_.ranks)) return planned;
  if (const Kind* kind = find(call)) {
    planned.algorithm = kind->trials.best().algorithm;
    planned.slice_bytes = kind->trials.best().slice_bytes;
  }
  return planned;
}

void AutoTuner::before_start(Operation& operation) {
  Kind* const kind = find_or_make(operation.call);
  if (kind == nullptr) {
    operation.tuner = nullptr;
    return;
  }
  if (kind->trials.needs_times()) end_agreement(*kind, operation.call);
  const Trials::Run run = kind->trials.next_run();
  if (operation.algorithm != run.choice.algorithm ||
      operation.signature.slice_bytes != run.choice.slice_bytes) {
    const int64_t begin_ns = parts_.clock->now_ns();
    parts_.rebind(operation, run.choice.algorithm, run.choice.slice_bytes);
    kind->rebinding_s += 1e-9 * static_cast<double>(parts_.clock->now_ns() - begin_ns);
  }
  if (run.is_timed) operation.timed = kind->timed.emplace_back(std::make_shared<RunTime>());
  kind->agrees = run.agrees;
  if (kind->trials.is_over()) operation.tuner = nullptr;  // it has the best
}

std::shared_ptr<Group> AutoTuner::after_start(Operation& operation) {
  Kind* const kind = find(operation.call);
  if (kind == nullptr || !std::exchange(kind->agrees, false)) return nullptr;
  if (!kind->agreement) {
    const Call call = Call::all_reduce(std::span(kind->times), kMin);
    const PlanDecision decision = parts_.plan(call);
    kind->agreement = std::make_shared<Group>();
    kind->agreement->add(parts_.prepare(call, decision.algorithm, decision.slice_bytes));
  }
  assert(kind->timed.size() == Trials::kTimedRuns);
  std::ranges::transform(kind->timed, kind->times.begin(), [](const auto& run) {
    return run->ended_ns == 0 ? kUnknown_s
                              : 1e-9 * static_cast<double>(run->ended_ns - run->begun_ns);
  });
  kind->times.back() = -kind->rebinding_s;  // the most, of minima
  kind->timed.clear();
  kind->rebinding_s = 0;
  return kind->agreement;
}

std::shared_ptr<Group> AutoTuner::awaited(const Operation& operation) {
  const Kind* const kind = find(operation.call);
  const bool waits =
      kind != nullptr && kind->trials.needs_times() && !kind->agreement->is_finished();
  return waits ? kind->agreement : nullptr;
}

AutoTuner::KindKey AutoTuner::key_of(const Call& call) const {
  const ReduceKind op = traits_of(call.collective).reduces ? call.op.kind : ReduceKind::sum;
  return {call.collective, call.type, op, total_bytes(call, parts_.ranks)};
}

AutoTuner::Kind* AutoTuner::find(const Call& call) const {
  const auto found = kinds_.find(key_of(call));
  return found == kinds_.end() ? nullptr : found->second.get();
}

AutoTuner::Kind* AutoTuner::find_or_make(const Call& call) {
  if (Kind* kind = find(call)) return kind;
  if (kinds_.size() == kKindsMax) return nullptr;
  std::array<double, Trials::kTimedRuns + 1> times;
  const PlanDecision agreement = parts_.plan(Call::all_reduce(std::span(times), kMin));
  auto kind = std::make_unique<Kind>(choices_for(call), 1e-6 * agreement.predicted_us);
  return kinds_.emplace(key_of(call), std::move(kind)).first->second.get();
}

std::vector<TrialChoice> AutoTuner::choices_for(const Call& call) const {
  const PlanDecision planned = parts_.plan(call);
  const double planned_s = 1e-6 * planned.predicted_us;
  std::vector<TrialChoice> choices = {{planned.algorithm, planned.slice_bytes, planned_s}};
  if (may_reorder(call, parts_.ranks))
    for (const Candidate& candidate : planned.candidates) {
      if (!candidate.eligible || choices.size() > kAlgorithmsMax) break;
      if (candidate.algorithm == planned.algorithm || candidate.partners > kPartnersFew) continue;
      Call forced = call;
      forced.algorithm = candidate.algorithm;
      choices.push_back(
          {candidate.algorithm, parts_.plan(forced).slice_bytes, 1e-6 * candidate.predicted_us});
    }
  // Where messages are a slice or longer. What shorter ones take nobody predicts: as good a try as
  // any.
  const size_t part_bytes = total_bytes(call, parts_.ranks) / static_cast<size_t>(parts_.ranks);
  const size_t half = planned.slice_bytes / 2 / 64 * 64;
  if (half >= kSliceMin && part_bytes >= planned.slice_bytes)
    choices.push_back({planned.algorithm, half, planned_s});
  return choices;
}

void AutoTuner::end_agreement(Kind& kind, const Call& call) {
  assert(kind.agreement->is_finished());
  Trials::Times times;
  std::copy_n(kind.times.begin(), times.size(), times.begin());
  kind.trials.set_times(times, -kind.times.back());
  const Trials& trials = kind.trials;
  if (!trials.is_over()) return;
  kind.agreement.reset();
  if (parts_.rank == 0)
    log(LogLevel::info, 0,
        "{} of {} bytes: kept {} in slices of {} bytes, {:.4g} us; as planned {:.4g} us",
        name_of(call.collective), total_bytes(call, parts_.ranks), name_of(trials.best().algorithm),
        trials.best().slice_bytes, 1e6 * trials.best_s(), 1e6 * trials.planned_s());
}

}  // namespace ropewalk

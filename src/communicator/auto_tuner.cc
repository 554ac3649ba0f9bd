#include "communicator/auto_tuner.h"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "engine/layout.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

constexpr size_t kKindsMax = 64;             // more are not tuned
constexpr size_t kAlgorithmsMax = 3;         // to try, beside the planner's choice
constexpr size_t kUnwatchedBytesMax = 4096;  // of a rank; such calls the probe times
constexpr size_t kSliceMin = 16 << 10;
constexpr double kUnknown_s = -1;  // of a run that has not ended
constexpr int64_t kBetweenWarnings_ns = 60'000'000'000;

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

Trials::Times times_of(const RunTimes& agreed) {
  Trials::Times times;
  std::copy_n(agreed.seconds.begin(), times.size(), times.begin());
  return times;
}

}  // namespace

void AutoTuner::attach(Group& group) {
  Operation* only = nullptr;
  for (const auto& part : group.parts()) {
    if (part->is_point_to_point()) continue;
    if (only != nullptr) return;
    only = part.get();
  }
  if (only == nullptr || !can_be_tuned(only->call, parts_.ranks)) return;
  bool has_room = false;
  parts_.locked([&] {
    only->kind = find(only->call);
    has_room = kinds_.size() < kKindsMax;
  });
  if (!only->kind && has_room) only->kind = make(only->call);
  if (only->kind) only->tuner = this;
}

void AutoTuner::clear() {
  for (auto& [key, kind] : kinds_) kind->agreements.clear();  // operations may live on
  kinds_.clear();
}

PlanDecision AutoTuner::best_for(const Call& call, PlanDecision planned) const {
  if (!can_be_tuned(call, parts_.ranks)) return planned;
  if (const auto kind = find(call)) {
    planned.algorithm = kind->trials.best().algorithm;
    planned.slice_bytes = kind->trials.best().slice_bytes;
  }
  return planned;
}

bool AutoTuner::join_kind(Operation& operation) {
  if (operation.kind->is_known) return true;
  const KindKey key = key_of(operation.call);
  if (kinds_.size() == kKindsMax && !kinds_.contains(key)) return false;
  operation.kind = kinds_.try_emplace(key, operation.kind).first->second;
  operation.kind->is_known = true;
  return true;
}

void AutoTuner::before_start(Operation& operation) {
  if (!join_kind(operation)) {
    operation.tuner = nullptr;
    operation.kind.reset();
    return;
  }
  TunedKind& kind = *operation.kind;
  if (kind.trials.needs_times()) end_agreement(kind, operation.call);
  if (kind.unread > 0) end_watched(kind, operation);
  const bool watches = kind.trials.is_over();
  const Trials::Run run = kind.trials.next_run();
  if (operation.algorithm != run.choice.algorithm ||
      operation.signature.slice_bytes != run.choice.slice_bytes) {
    const int64_t begin_ns = parts_.clock->now_ns();
    parts_.rebind(operation, run.choice.algorithm, run.choice.slice_bytes);
    kind.rebinding_s += 1e-9 * static_cast<double>(parts_.clock->now_ns() - begin_ns);
  }
  const RunWatch::Run watched = watches ? kind.watch.next_run() : RunWatch::Run();
  if (run.is_timed || watched.is_timed) time(operation, kind);
  kind.agrees = run.agrees || watched.agrees;
}

/// In a RunTime that is there, unless the run that it is of has not ended.
void AutoTuner::time(Operation& operation, TunedKind& kind) {
  std::shared_ptr<RunTime>& run = kind.timed[kind.timed_count++];
  if (run && run.use_count() == 1)
    *run = RunTime();
  else
    run = std::make_shared<RunTime>();
  operation.timed = run;
}

std::shared_ptr<Group> AutoTuner::after_start(Operation& operation) {
  TunedKind& kind = *operation.kind;
  if (!std::exchange(kind.agrees, false)) return nullptr;
  assert(kind.timed_count == Trials::kTimedRuns);
  RunTimes& agreement = idle_agreement(kind);
  std::ranges::transform(kind.timed, agreement.seconds.begin(), [](const auto& run) {
    return run->ended_ns == 0 ? kUnknown_s
                              : 1e-9 * static_cast<double>(run->ended_ns - run->begun_ns);
  });
  agreement.seconds.back() = -kind.rebinding_s;  // the most, of minima
  agreement.is_unread = kind.trials.is_over() && parts_.rank == 0;
  kind.unread += agreement.is_unread;
  kind.timed_count = 0;
  kind.rebinding_s = 0;
  kind.last = &agreement;
  return agreement.all_reduce;
}

RunTimes& AutoTuner::idle_agreement(TunedKind& kind) const {
  for (const auto& one : kind.agreements)
    if (!one->is_unread && one->all_reduce->is_finished()) return *one;
  auto fresh = std::make_unique<RunTimes>();
  fresh->all_reduce = std::make_shared<Group>();
  fresh->all_reduce->add(parts_.prepare(Call::all_reduce(std::span(fresh->seconds), kMin),
                                        kind.agreement_algorithm, kind.agreement_slice_bytes));
  return *kind.agreements.emplace_back(std::move(fresh));
}

std::shared_ptr<Group> AutoTuner::awaited(const Operation& operation) {
  const TunedKind& kind = kind_of(operation);
  const bool waits = kind.trials.needs_times() && !kind.last->all_reduce->is_finished();
  return waits ? kind.last->all_reduce : nullptr;
}

AutoTuner::KindKey AutoTuner::key_of(const Call& call) const {
  const ReduceKind op = traits_of(call.collective).reduces ? call.op.kind : ReduceKind::sum;
  return {call.collective, call.type, op, total_bytes(call, parts_.ranks)};
}

TunedKind& AutoTuner::kind_of(const Operation& operation) const {
  if (!operation.kind->is_known)
    if (const auto known = find(operation.call)) return *known;  // kinds_ keeps it
  return *operation.kind;
}

std::shared_ptr<TunedKind> AutoTuner::find(const Call& call) const {
  const auto found = kinds_.find(key_of(call));
  return found == kinds_.end() ? nullptr : found->second;
}

std::shared_ptr<TunedKind> AutoTuner::make(const Call& call) const {
  std::array<double, Trials::kTimedRuns + 1> times;
  auto kind = std::make_shared<TunedKind>(choices_for(call),
                                          parts_.plan(Call::all_reduce(std::span(times), kMin)));
  for (auto& run : kind->timed) run = std::make_shared<RunTime>();
  return kind;
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

void AutoTuner::end_agreement(TunedKind& kind, const Call& call) {
  assert(kind.last->all_reduce->is_finished());
  kind.trials.set_times(times_of(*kind.last), -kind.last->seconds.back());
  const Trials& trials = kind.trials;
  if (!trials.is_over()) return;
  kind.watch.set_usual(trials.best_s());
  if (parts_.rank == 0)
    log(LogLevel::info, 0,
        "{} of {} bytes: kept {} in slices of {} bytes, {:.4g} us; as planned {:.4g} us",
        name_of(call.collective), total_bytes(call, parts_.ranks), name_of(trials.best().algorithm),
        trials.best().slice_bytes, 1e6 * trials.best_s(), 1e6 * trials.planned_s());
}

void AutoTuner::end_watched(TunedKind& kind, const Operation& operation) {
  for (const auto& one : kind.agreements) {
    if (!one->is_unread || !one->all_reduce->is_finished()) continue;
    one->is_unread = false;
    --kind.unread;
    kind.watch.set_times(times_of(*one));
    warn_of(kind, operation);
  }
}

void AutoTuner::warn_of(TunedKind& kind, const Operation& operation) {
  if (!kind.watch.is_slow()) kind.is_told = false;
  if (!kind.watch.is_slow() || kind.is_told) return;
  const int64_t now_ns = parts_.clock->now_ns();
  if (warned_ns_ != 0 && now_ns - warned_ns_ < kBetweenWarnings_ns) return;
  warned_ns_ = now_ns;
  kind.is_told = true;
  log(LogLevel::warn, 0,
      "{} of {} by {} takes {}, and took {} before; predicted were {}. A link or a host may have "
      "become slower. Where it stays so, `ropewalk tune` measures anew what to choose",
      name_of(operation.call.collective), bytes_text(total_bytes(operation.call, parts_.ranks)),
      name_of(operation.algorithm), time_text(1e6 * kind.watch.last_s()),
      time_text(1e6 * kind.watch.usual_s()), time_text(1e6 * kind.predicted_s));
}

}  // namespace ropewalk

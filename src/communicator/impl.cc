#include "communicator/impl.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "communicator/find_costs.h"
#include "engine/layout.h"
#include "job/plan_request.h"
#include "simulate/job_network.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

/// Of the cache: that are idle; in all, since programs wait for many at once and start them again.
constexpr size_t kIdleEntries = 32;
constexpr size_t kEntries = 512;
/// Calls of a group up to this size are fused by copying into one buffer.
constexpr size_t kFuseBytesMax = 256 << 10;

bool can_fuse(const Call& call) {
  // Not scaled_sum: each rank has its own scales, and all must fuse alike.
  return call.collective == Collective::all_reduce && call.op.kind != ReduceKind::user &&
         call.op.kind != ReduceKind::scaled_sum && call.count * size_of(call.type) <= kFuseBytesMax;
}

bool fuses_with(const Call& a, const Call& b) {
  return can_fuse(a) && can_fuse(b) && a.type == b.type && a.op.kind == b.op.kind &&
         a.algorithm == b.algorithm;
}

/// What a tuning profile can be asked about.
TunedJob tuned_part(const Job& job, const Members& members, const TransportChoice& choice,
                    bool with_names) {
  TunedJob tuned{.host_names = {}, .hosts = members.placement.hosts, .transport = names_of(choice)};
  if (!with_names) return tuned;
  const std::vector<std::string> names = job.host_names();
  for (const int rank : members.in_job)
    tuned.host_names.push_back(names[static_cast<size_t>(rank)]);
  return tuned;
}

}  // namespace

Costs inherited_costs(const Communicator::Impl& whole, const Job& job, const Members& members,
                      const TransportChoice& choice, const std::vector<int>& ranks) {
  Costs costs = costs_of_part(whole.costs, whole.members.placement.hosts, ranks,
                              tuned_part(job, members, choice, whole.costs.profile != nullptr));
  costs.network = whole.costs.network ? whole.costs.network->part(ranks, members.rank) : nullptr;
  return costs;
}

Communicator::Impl::Impl(const Options& options,
                         std::shared_ptr<bootstrap::Predecessor> predecessor)
    : session(std::make_shared<Session>(options, std::move(predecessor))),
      epoch(
          std::make_shared<EpochState>(session->job.world()->epoch_monitor(), session->job.rank())),
      members(members_of(session->job)),
      choice(session->job.choice()),
      owned_engine(session->make_engine(0, members, *epoch->monitor)),
      driver(std::make_shared<Driver>(session->progress, engine, config().timeout.count())),
      costs(unmeasured_costs(choice)) {
  epoch->description.former_ranks = members.in_job;
  epoch->open();
}

// The engine comes first: others may be in this epoch already, and have sent it something.
Communicator::Impl::Impl(const Impl& former, const std::vector<int>& ranks, Members members_,
                         std::shared_ptr<EpochState> epoch_, const std::vector<int>& departed)
    : session(former.session),
      epoch(std::move(epoch_)),
      members(std::move(members_)),
      choice(choice_of_part(session->job.choice(), members.placement.hosts)),
      owned_engine(session->make_engine(communicator_of_epoch(session->job.world()->epoch()),
                                        members, *epoch->monitor)),
      driver((session->restart(departed),
              std::make_shared<Driver>(session->progress, engine, config().timeout.count()))),
      costs(inherited_costs(former, session->job, members, choice, ranks)),
      costs_are_found(true) {
  have_tuner();
  epoch->open();
}

Communicator::Impl::Impl(const std::shared_ptr<Impl>& whole_, const std::vector<int>& ranks,
                         Members members_, std::shared_ptr<bootstrap::Part> part_,
                         int64_t timeout_ns)
    : session(whole_->session),
      epoch(whole_->epoch),
      part(std::move(part_)),
      members(std::move(members_)),
      choice(choice_of_part(session->job.choice(), members.placement.hosts)),
      owned_engine(
          session->make_engine(Session::communicator_of(part->number()), members, part->monitor())),
      driver(std::make_shared<Driver>(session->progress, engine, timeout_ns)),
      costs(inherited_costs(*whole_, session->job, members, choice, ranks)),
      whole(whole_),
      ranks_in_whole(ranks) {
  have_tuner();
  part->on_failure([this] { driver->quiesce(); });
  epoch->open();
}

Communicator::Impl::~Impl() {
  close();
  if (part) part->on_failure({});
}

Monitor& Communicator::Impl::monitor() const {
  return part ? part->monitor() : *epoch->monitor;
}

// ---- The end ----

void Communicator::Impl::leave() {
  driver->throw_if_forked();
  if (std::exchange(left_, true)) return;
  report_exception();
  struct Stop {
    Impl& impl;
    ~Stop() {
      // Their callers may free memory that peers still write to.
      if (impl.engine.has_operations()) impl.driver->settle();
      impl.driver->stop();
    }
  } stop{*this};
  driver->finish_all();
  forget_state_part();
  const CallHistory& made = engine.failures().calls();
  const CallsMade calls{made.count, made.digest, engine.failures().last_call()};
  if (part)
    leave_part(calls);
  else
    epoch->calls = calls;
  if (epoch->close())
    leave_job();
  else if (!part)
    tell_rest();
  const Failure* const failure = monitor().failure();
  if (failure != nullptr && failure->code == ErrorCode::mismatch && !driver->has_thrown_failure())
    throw Error(*failure);
}

void Communicator::Impl::forget() {
  assert(part != nullptr);
  left_ = true;
  driver->stop();
  epoch->close();
}

void Communicator::Impl::forget_state_part() {
  if (!state_part || state_part->impl_->left_) return;
  state_part->impl_->driver->finish_all();
  state_part->impl_->forget();
}

/// Who leaves serves those who have not, as long as it waits for them.
void Communicator::Impl::leave_part(const CallsMade& calls) {
  part->leave(calls);
  try {
    if (!driver->serve_until([this] { return part->all_have_left() && !engine.links().owes(); }))
      log(LogLevel::warn, rank(), "left a part of the job without all of its ranks");
  } catch (const Error&) {
    return;  // it has failed
  }
}

/// Of the whole, whose parts live on: peers may wait for what it owes them.
void Communicator::Impl::tell_rest() {
  try {
    driver->serve_until([this] { return !engine.links().owes(); });
  } catch (const Error&) {
    return;  // the job has failed
  }
}

/// The last communicator of the process ends the job. One that is followed by another lives on in
/// that (Session::former_world), and has time to tell the others what they may not have heard.
void Communicator::Impl::leave_job() {
  if (epoch->is_followed) return;
  driver->locked([this] { session->worker.connections().set_left(); });
  session->job.leave(epoch->calls, [this] { return driver->serve(); });
}

void Communicator::Impl::report_exception() {
  if (std::uncaught_exceptions() <= exceptions_ || size() == 1) return;
  monitor().report(exception_failure(rank(), blamed.get(calls_made())));
  const auto all = whole.lock();
  const Failure* failure = monitor().failure();
  if (all && failure != nullptr)
    all->blame(seen_from_whole(*failure, ranks_in_whole, all->monitor()).failure());
}

void Communicator::Impl::close() noexcept {
  try {
    leave();
  } catch (const Error& error) {
    log(LogLevel::error, rank(), "{}", error.what());
  }
  std::lock_guard lock(cache_mutex_);
  keep(nullptr);
  cache_.clear();
  if (tuner_) driver->locked([&] { tuner_->clear(); });
}

// ---- Calls ----

void Communicator::Impl::set_costs(const Costs& agreed) {
  costs = agreed;
  costs_are_found = true;
  if (rank() == 0) log_costs(costs);
  std::lock_guard lock(cache_mutex_);
  keep(nullptr);
  cache_.clear();  // of what measured them
  have_tuner();
}

void Communicator::Impl::have_tuner() {
  if (choice.between != nullptr && session->job.probes_costs()) tuner_.emplace(parts_for_tuner());
}

void Communicator::Impl::check(std::span<const Call> calls) const {
  driver->throw_if_stopped();
  driver->throw_if_failed();
  for (const Call& call : calls) check_call(call, rank(), size());
}

std::shared_ptr<Group> Communicator::Impl::start(std::span<const Call> calls, bool in_background) {
  auto group = find_last(calls);  // nobody else gets it while this one is held
  if (!group) {
    check(calls);
    if (calls.empty()) return driver->ended_group();
    group = find_or_fail(calls);
  }
  driver->start(*group, in_background);
  return group;
}

void Communicator::Impl::run_beside(const Call& call, const std::function<void()>& meanwhile) {
  driver->throw_if_forked();
  std::unique_ptr<CachedGroup> kept(kept_.exchange(nullptr));
  if (!kept || kept->call != call || !kept->group->is_valid()) {
    kept.reset();
    const std::span calls(&call, 1);
    auto group = find_last(calls);
    if (!group) {
      check(calls);
      return driver->run_beside(*find_or_fail(calls), meanwhile);
    }
    kept = std::make_unique<CachedGroup>(
        CachedGroup{call, std::move(group)});  // it has come twice in a row
  }
  driver->run_beside(*kept->group, meanwhile);
  keep(std::move(kept));
}

/// What the last calls were run with, where `calls` equal them: then those were checked. A loop
/// makes one call over and over.
std::shared_ptr<Group> Communicator::Impl::find_last(std::span<const Call> calls) {
  driver->throw_if_stopped();
  std::lock_guard lock(cache_mutex_);
  if (cache_.empty() || calls.empty()) return nullptr;
  const Cached& last = cache_.front();
  if (!last.is_idle() || !std::ranges::equal(last.calls, calls)) return nullptr;
  // `find` drops what names memory that has gone.
  const bool all_valid = std::ranges::all_of(cache_, &Group::is_valid, &Cached::group);
  return all_valid ? last.group : nullptr;
}

std::shared_ptr<Group> Communicator::Impl::find_or_fail(std::span<const Call> calls) {
  std::lock_guard lock(cache_mutex_);
  try {
    return find(calls);
  } catch (const Error& error) {
    throw lacks(error);
  }
}

Error Communicator::Impl::lacks(const Error& error) {
  if (error.code() != ErrorCode::exhausted && error.code() != ErrorCode::system) return error;
  Failure failure = error.failure();
  failure.rank = failure.peer = rank();
  monitor().report(failure);
  return Error(failure);
}

/// A prepared operation for `calls`, from the cache where an idle one of equal calls is there.
std::shared_ptr<Group> Communicator::Impl::find(std::span<const Call> calls) {
  cache_.remove_if([](const Cached& entry) { return entry.is_idle() && !entry.group->is_valid(); });
  const auto found = std::ranges::find_if(cache_, [&](const Cached& entry) {
    return entry.is_idle() && std::ranges::equal(entry.calls, calls);
  });
  if (found != cache_.end()) {
    cache_.splice(cache_.begin(), cache_, found);
    return found->group;
  }
  auto fresh = prepare_making_room(calls);  // in use from here on: it is not given up below
  cache_.push_front({{calls.begin(), calls.end()}, fresh});
  for (auto entry = cache_.end(); cache_.size() > kIdleEntries && entry != cache_.begin();) {
    --entry;
    if (entry->is_idle()) entry = cache_.erase(entry);
  }
  // What a Work holds lives without the cache, too, in which it is looked for one by one. The
  // newest goes: of calls that are started in a circle, the others are found again.
  const auto newest = std::next(cache_.begin());
  if (cache_.size() > kEntries && newest->group.use_count() > 1) cache_.erase(newest);
  return fresh;
}

/// Idle operations hold staging memory and registrations, which count against the process's
/// limits.
std::shared_ptr<Group> Communicator::Impl::prepare_making_room(std::span<const Call> calls) {
  try {
    return prepare(calls);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    keep(nullptr);
    if (cache_.remove_if([](const Cached& entry) { return entry.is_idle(); }) == 0) throw;
  }
  return prepare(calls);
}

std::shared_ptr<Group> Communicator::Impl::prepare(std::span<const Call> calls) {
  auto group = std::make_shared<Group>();
  group->driver = driver;
  std::vector<const Call*> left;
  for (const Call& call : calls) left.push_back(&call);
  while (!left.empty()) {
    const Call& first = *left.front();
    const auto others = std::stable_partition(left.begin(), left.end(), [&](const Call* call) {
      return call == &first || fuses_with(first, *call);
    });
    const std::span alike(left.begin(), others);
    group->add(alike.size() > 1 ? prepare_fused(alike) : prepare_one(first, calls.size() == 1));
    left.erase(left.begin(), others);
  }
  if (tuner_) tuner_->attach(*group);
  return group;
}

PlanDecision Communicator::Impl::decide(const Call& call) const {
  return plan_for(call, config(), choice, members.placement, costs);
}

/// `alone`: as what was learned of such calls says, if the tuner attends to it.
std::shared_ptr<Operation> Communicator::Impl::prepare_one(const Call& call, bool alone) {
  PlanDecision decision{Algorithm::automatic, slice_bytes_max(config()), 0, {}};
  const bool is_collective = !traits_of(call.collective).is_point_to_point();
  if (is_collective) decision = decide(call);
  if (alone && is_collective && tuner_)
    decision = driver->locked([&] { return tuner_->best_for(call, decision); });
  const Schedule schedule = schedule_of(call, decision.algorithm);  // which may take long
  return driver->locked(
      [&] { return engine.prepare(call, schedule, decision.algorithm, decision.slice_bytes); });
}

Schedule Communicator::Impl::schedule_of(const Call& call, Algorithm algorithm) const {
  if (algorithm == Algorithm::synthesized)
    return costs.network->schedule(call.collective, call.root, total_bytes(call, size()));
  if (!traits_of(call.collective).is_point_to_point())
    return build_schedule({call.collective, algorithm, size(), call.root,
                           grouping_for(algorithm, size(), members.placement.hosts, costs.racks,
                                        members.placement.rows)},
                          rank());
  Schedule schedule{size(), rank(), 1, 0, {}, {}};
  schedule.steps.push_back(
      {call.collective == Collective::send ? StepOp::send_copy : StepOp::recv_copy,
       static_cast<uint8_t>(call.channel), call.root});
  return schedule;
}

/// `calls` run as one, on a vector that holds them one behind the other.
std::shared_ptr<Operation> Communicator::Impl::prepare_fused(std::span<const Call* const> calls) {
  Call fused = *calls[0];
  fused.count = 0;
  for (const Call* call : calls) fused.count += call->count;
  auto packed = allocate(fused.count * size_of(fused.type));
  fused.in = fused.out = packed->data();
  auto operation = prepare_one(fused, false);
  std::byte* at = packed->data();
  for (const Call* call : calls) {
    const size_t bytes = call->count * size_of(call->type);
    operation->fragments.push_back({static_cast<const std::byte*>(call->in),
                                    static_cast<std::byte*>(call->out),
                                    std::exchange(at, at + bytes), bytes});
  }
  operation->memory.packed = std::move(packed);
  return operation;
}

AutoTuner::Parts Communicator::Impl::parts_for_tuner() {
  return {.rank = rank(),
          .ranks = size(),
          .clock = &session->clock,
          .locked = [this](const std::function<void()>& body) { driver->locked(body); },
          .plan = [this](const Call& call) { return decide(call); },
          .rebind =
              [this](Operation& operation, Algorithm algorithm, size_t slice_bytes) {
                engine.rebind(operation, schedule_of(operation.call, algorithm), algorithm,
                              slice_bytes);
              },
          .prepare =
              [this](const Call& call, Algorithm algorithm, size_t slice_bytes) {
                return engine.prepare(call, schedule_of(call, algorithm), algorithm, slice_bytes);
              }};
}

Call Communicator::Impl::barrier_call() {
  Call call = Call::all_reduce(std::span(reinterpret_cast<uint8_t*>(&barrier_byte), 1), kMax);
  call.collective = Collective::barrier;
  return call;
}

std::shared_ptr<RegisteredMemory> Communicator::Impl::allocate(size_t bytes) {
  driver->throw_if_stopped();
  auto memory =
      std::make_shared<RegisteredMemory>(bytes, session->job.transports(), bind_memory_near_caller);
  driver->locked([&] {
    for (Transport* transport : session->job.transports()) memory->register_with(*transport);
  });
  session->memories.add(memory);
  return memory;
}

}  // namespace ropewalk

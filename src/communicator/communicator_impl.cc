#include "communicator/communicator_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "engine/layout.h"
#include "job/options.h"
#include "job/plan_request.h"
#include "schedule/collective.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

/// Of the cache: that are idle; in all, since programs wait for many at once and start them again.
constexpr size_t kIdleEntries = 32;
constexpr size_t kEntries = 512;
/// Calls of a group up to this size are fused by copying into one buffer.
constexpr size_t kFuseBytesMax = 256 << 10;

bool same_call(const Call& a, const Call& b) {
  return a.collective == b.collective && a.in == b.in && a.out == b.out && a.count == b.count &&
         a.counts == b.counts && a.recv_counts == b.recv_counts && a.type == b.type &&
         a.op.kind == b.op.kind && a.op.scale == b.op.scale && a.op.function == b.op.function &&
         a.op.context == b.op.context && a.root == b.root && a.channel == b.channel &&
         a.tag == b.tag && a.algorithm == b.algorithm;
}

bool can_fuse(const Call& call) {
  // Not scaled_sum: each rank has its own scales, and all must fuse alike.
  return call.collective == Collective::all_reduce && call.op.kind != ReduceKind::user &&
         call.op.kind != ReduceKind::scaled_sum && call.count * size_of(call.type) <= kFuseBytesMax;
}

bool fuses_with(const Call& a, const Call& b) {
  return can_fuse(a) && can_fuse(b) && a.type == b.type && a.op.kind == b.op.kind &&
         a.algorithm == b.algorithm;
}

}  // namespace

Communicator::Impl::Impl(const Options& options)
    : job_(options), costs_(constant_costs(job_.choice())) {
  start_engine();
}

Communicator::Impl::~Impl() {
  close();
}

void Communicator::Impl::leave() {
  driver_->throw_if_forked();
  if (std::exchange(left_, true)) return;
  job_.report_exception();
  const CallHistory& calls = engine_->failures().calls();
  struct Stop {
    Impl& impl;
    ~Stop() {
      impl.driver_->stop();
      // Their callers may free memory that peers still write to.
      if (impl.engine_->has_operations()) impl.engine_->stop_transports();
    }
  } stop{*this};
  try {
    driver_->finish_all();
    job_.leave({calls.count, calls.digest, engine_->failures().last_call()},
               [this] { driver_->progress(); });
  } catch (const Error&) {
    if (!driver_->has_thrown_failure()) throw;
  }
}

/// Prepared operations hold staging memory, which would live as long as the last handle.
void Communicator::Impl::close() noexcept {
  try {
    leave();
  } catch (const Error& error) {
    log(LogLevel::error, rank(), "{}", error.what());
  }
  std::lock_guard lock(cache_mutex_);
  cache_.clear();
}

void Communicator::Impl::start_engine() {
  engine_ = std::make_unique<Engine>(rank(), size(), job_.transports(), job_.route(), memories_,
                                     job_.monitor(), clock_);
  DriverOptions options;
  options.timeout_ns = job_.config().timeout.count();
  options.progress_thread = job_.config().progress_thread;
  options.progress_cpu = job_.config().progress_cpu;
  options.oversubscribed = job_.shares_cpus();
  options.across_hosts = job_.choice().between != nullptr;
  driver_ = std::make_shared<Driver>(*engine_, clock_, job_.monitor().event_fd(), options);
}

std::shared_ptr<RegisteredMemory> Communicator::Impl::allocate(size_t bytes) {
  driver_->throw_if_stopped();
  auto memory =
      std::make_shared<RegisteredMemory>(bytes, job_.transports(), bind_memory_near_caller);
  driver_->locked([&] {
    for (Transport* transport : job_.transports()) memory->register_with(*transport);
    return true;
  });
  memories_.add(memory);
  return memory;
}

void Communicator::Impl::abort(const std::string& reason) {
  driver_->throw_if_forked();
  job_.monitor().report({ErrorCode::aborted, "abort",
                         fmt::format("rank {} aborted the job: {}", rank(), reason), "", rank(),
                         rank()});
}

std::optional<int64_t> Communicator::Impl::culprit_process() const {
  const Failure* failure = job_.monitor().failure();
  if (failure == nullptr || failure->peer == rank()) return {};
  if (failure->code != ErrorCode::aborted && failure->code != ErrorCode::peer_lost) return {};
  return job_.local_process(failure->peer);
}

Options Communicator::Impl::options() const {
  Options options;
  visit_settings(options, job_.config(),
                 [](auto& option, const auto& setting) { option = setting; });
  return options;
}

void Communicator::Impl::set_costs(const Costs& costs) {
  if (rank() == 0 && costs.inter != CostSource::constant)
    log(LogLevel::info, 0, "costs between hosts: {} ({})", text_of(costs.model.inter),
        name_of(costs.inter));
  costs_ = costs;
  std::lock_guard lock(cache_mutex_);
  cache_.clear();  // of what measured them
}

Call Communicator::Impl::barrier_call() {
  Call call;
  call.collective = Collective::barrier;
  call.in = call.out = &barrier_byte_;
  call.count = 1;
  call.type = DataType::uint8;
  call.op = kMax;
  return call;
}

std::shared_ptr<Group> Communicator::Impl::plan(const Call& call) {
  check(std::span(&call, 1));
  return prepare(std::span(&call, 1));
}

std::shared_ptr<Group> Communicator::Impl::start(std::span<const Call> calls, bool in_background) {
  check(calls);
  if (calls.empty()) return driver_->ended_group();
  const auto group = cached_or_failed(calls);  // nobody else gets it while this one is held
  driver_->start(*group, in_background);
  return group;
}

/// Where this rank lacks what the call needs, peers may be in the call already: they fail with this
/// rank's reason instead of waiting for it.
std::shared_ptr<Group> Communicator::Impl::cached_or_failed(std::span<const Call> calls) {
  std::lock_guard lock(cache_mutex_);
  try {
    return cached(calls);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted && error.code() != ErrorCode::system) throw;
    Failure failure = error.failure();
    failure.rank = failure.peer = rank();
    job_.monitor().report(failure);
    throw Error(failure);
  }
}

void Communicator::Impl::check(std::span<const Call> calls) const {
  driver_->throw_if_stopped();
  driver_->throw_if_failed();
  for (const Call& call : calls) check_call(call, rank(), size());
}

std::shared_ptr<Group> Communicator::Impl::cached(std::span<const Call> calls) {
  cache_.remove_if(
      [](const Cached& entry) { return entry.group->is_finished() && !entry.group->is_valid(); });
  for (auto entry = cache_.begin(); entry != cache_.end(); ++entry) {
    // A Work that was not waited for must not see the next run.
    if (entry->group.use_count() > 1 || !entry->group->is_finished() ||
        !std::equal(entry->calls.begin(), entry->calls.end(), calls.begin(), calls.end(),
                    same_call))
      continue;
    cache_.splice(cache_.begin(), cache_, entry);
    return cache_.front().group;
  }
  auto fresh = prepare_making_room(calls);  // in use from here on: it is not given up below
  cache_.push_front({{calls.begin(), calls.end()}, fresh});
  for (auto entry = cache_.end(); cache_.size() > kIdleEntries && entry != cache_.begin();) {
    --entry;
    if (entry->group.use_count() == 1 && entry->group->is_finished()) entry = cache_.erase(entry);
  }
  // What a Work holds lives without the cache, too, in which it is looked for one by one. The
  // newest goes: of calls that are started in a circle, the others are found again.
  const auto newest = std::next(cache_.begin());
  if (cache_.size() > kEntries && newest->group.use_count() > 1) cache_.erase(newest);
  return fresh;
}

/// Idle operations hold staging memory and registrations, which count against the process's limits.
std::shared_ptr<Group> Communicator::Impl::prepare_making_room(std::span<const Call> calls) {
  try {
    return prepare(calls);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    const auto given_up = cache_.remove_if([](const Cached& entry) {
      return entry.group.use_count() == 1 && entry.group->is_finished();
    });
    if (given_up == 0) throw;
  }
  return prepare(calls);
}

std::shared_ptr<Group> Communicator::Impl::prepare(std::span<const Call> calls) {
  auto group = std::make_shared<Group>();
  group->driver = driver_;
  std::vector<bool> taken(calls.size(), false);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (taken[i]) continue;
    std::vector<const Call*> alike = {&calls[i]};
    for (size_t j = i + 1; j < calls.size(); ++j)
      if (!taken[j] && fuses_with(calls[i], calls[j])) {
        taken[j] = true;
        alike.push_back(&calls[j]);
      }
    if (alike.size() > 1)
      add_fused(*group, alike);
    else
      group->add(prepare_one(calls[i]));
  }
  return group;
}

std::shared_ptr<Operation> Communicator::Impl::prepare_one(const Call& call) {
  if (traits_of(call.collective).is_point_to_point()) {
    Schedule schedule{size(), rank(), 1, 0, {}, {}};
    schedule.steps.push_back(
        {call.collective == Collective::send ? StepOp::send_copy : StepOp::recv_copy,
         static_cast<uint8_t>(call.channel), call.root});
    return driver_->locked([&] {
      return engine_->prepare(call, schedule, Algorithm::automatic, slice_bytes_max(job_.config()));
    });
  }
  const PlanDecision decision =
      plan_for(call, job_.config(), job_.choice(), job_.hosts(), costs_.model);
  const ScheduleKey key{call.collective, decision.algorithm, size(), call.root, job_.hosts()};
  const Schedule schedule = build_schedule(key, rank());
  return driver_->locked(
      [&] { return engine_->prepare(call, schedule, decision.algorithm, decision.slice_bytes); });
}

void Communicator::Impl::add_fused(Group& group, std::span<const Call* const> calls) {
  Call fused = *calls[0];
  fused.count = 0;
  for (const Call* call : calls) fused.count += call->count;
  auto packed = allocate(fused.count * size_of(fused.type));
  fused.in = fused.out = packed->data();
  auto operation = prepare_one(fused);
  group.add_packed(std::move(operation), std::move(packed), calls);
}

}  // namespace ropewalk

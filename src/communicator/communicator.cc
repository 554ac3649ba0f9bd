#include "ropewalk/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "base/log.h"
#include "bootstrap/auth.h"
#include "communicator/auto_tuner.h"
#include "communicator/find_costs.h"
#include "communicator/part.h"
#include "engine/driver.h"
#include "engine/layout.h"
#include "job/job.h"
#include "job/plan_request.h"
#include "ropewalk/fork.h"
#include "ropewalk/rendezvous.h"
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

/// Between hosts waits are long. A transport that naps makes them longer.
bool can_sleep_early(const Job& job) {
  return job.choice().between != nullptr &&
         std::ranges::none_of(job.transports(), [](const Transport* transport) {
           return transport->capabilities().naps;
         });
}

void require_channel(const char* operation, int channel) {
  if (channel < 0 || channel >= kChannels)
    throw Error(ErrorCode::invalid_argument, operation,
                fmt::format("channel {} is not in 0..{}", channel, kChannels - 1));
}

}  // namespace

/// Everything below the public surface of a communicator, wired together. A Communicator shares it
/// with the Works, Plans and Buffers that it gave out: they may outlive it. Members are destroyed
/// in reverse order: the driver stops first, and transports go after the engine.
class Communicator::Impl {
 public:
  /// Joins the job. `whole`: as World::join's. Throws Error.
  explicit Impl(const Options& options, const Monitor* whole = nullptr)
      : job(options, whole),
        engine(job.rank(), job.size(), job.transports(), job.route(), memories, job.monitor(),
               clock),
        driver(std::make_shared<Driver>(
            engine, clock, job.monitor().event_fd(),
            DriverOptions{job.config().timeout.count(), job.config().progress_thread,
                          job.config().progress_cpu, job.shares_cpus(), can_sleep_early(job)})),
        costs(unmeasured_costs(job.choice())) {}
  ~Impl() { close(); }

  void leave() {
    driver->throw_if_forked();
    if (std::exchange(left, true)) return;
    report_exception();
    struct Stop {
      Impl& impl;
      ~Stop() {
        impl.driver->stop();
        // Their callers may free memory that peers still write to.
        if (impl.engine.has_operations()) impl.engine.stop_transports();
      }
    } stop{*this};
    try {
      driver->finish_all();
      const CallHistory& calls = engine.failures().calls();
      job.leave({calls.count, calls.digest, engine.failures().last_call()},
                [this] { driver->progress(); });
    } catch (const Error&) {
      if (!driver->has_thrown_failure()) throw;
    }
  }

  uint32_t calls_made() {
    return driver->locked([this] { return engine.failures().calls().count; });
  }

  /// Returns it as what to throw. Thread-safe.
  Error blame(const Failure& failure) {
    blamed.set(failure, calls_made());
    return Error(failure);
  }

  void report_exception() {
    const bool unwinds = job.is_unwinding();
    job.report_exception(blamed.get(calls_made()));
    const auto all = whole.lock();
    const Failure* failure = job.monitor().failure();
    if (all && unwinds && failure != nullptr)
      all->blame(seen_from_whole(*failure, members, all->job.monitor()).failure());
  }

  /// The same where there is nobody to throw to. Prepared operations hold staging memory, which
  /// would live as long as the last handle.
  void close() noexcept {
    try {
      leave();
    } catch (const Error& error) {
      log(LogLevel::error, job.rank(), "{}", error.what());
    }
    std::lock_guard lock(cache_mutex);
    cache.clear();
    if (tuner) driver->locked([&] { tuner->clear(); });
  }

  /// What the planner reckons with. Before the first collective, alike on all ranks.
  void set_costs(const Costs& agreed) {
    costs = agreed;
    if (job.rank() == 0) log_costs(costs);
    std::lock_guard lock(cache_mutex);
    cache.clear();  // of what measured them
    if (job.choice().between != nullptr && job.probes_costs()) tuner.emplace(parts_for_tuner());
  }

  void check(std::span<const Call> calls) const {
    driver->throw_if_stopped();
    driver->throw_if_failed();
    for (const Call& call : calls) check_call(call, job.rank(), job.size());
  }

  /// Starts `calls`: one alone, or several as a group. `in_background`: as Driver::start.
  std::shared_ptr<Group> start(std::span<const Call> calls, bool in_background) {
    check(calls);
    if (calls.empty()) return driver->ended_group();
    const auto group = find_or_fail(calls);  // nobody else gets it while this one is held
    driver->start(*group, in_background);
    return group;
  }

  /// Where this rank lacks what the call needs, peers may be in the call already: they fail with
  /// this rank's reason instead of waiting for it.
  std::shared_ptr<Group> find_or_fail(std::span<const Call> calls) {
    std::lock_guard lock(cache_mutex);
    try {
      return find(calls);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted && error.code() != ErrorCode::system) throw;
      Failure failure = error.failure();
      failure.rank = failure.peer = job.rank();
      job.monitor().report(failure);
      throw Error(failure);
    }
  }

  /// A prepared operation for `calls`, from the cache where an idle one of equal calls is there.
  std::shared_ptr<Group> find(std::span<const Call> calls) {
    cache.remove_if(
        [](const Cached& entry) { return entry.is_idle() && !entry.group->is_valid(); });
    const auto found = std::ranges::find_if(cache, [&](const Cached& entry) {
      return entry.is_idle() && std::ranges::equal(entry.calls, calls);
    });
    if (found != cache.end()) {
      cache.splice(cache.begin(), cache, found);
      return found->group;
    }
    auto fresh = prepare_making_room(calls);  // in use from here on: it is not given up below
    cache.push_front({{calls.begin(), calls.end()}, fresh});
    for (auto entry = cache.end(); cache.size() > kIdleEntries && entry != cache.begin();) {
      --entry;
      if (entry->is_idle()) entry = cache.erase(entry);
    }
    // What a Work holds lives without the cache, too, in which it is looked for one by one. The
    // newest goes: of calls that are started in a circle, the others are found again.
    const auto newest = std::next(cache.begin());
    if (cache.size() > kEntries && newest->group.use_count() > 1) cache.erase(newest);
    return fresh;
  }

  /// Idle operations hold staging memory and registrations, which count against the process's
  /// limits.
  std::shared_ptr<Group> prepare_making_room(std::span<const Call> calls) {
    try {
      return prepare(calls);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::exhausted) throw;
      if (cache.remove_if([](const Cached& entry) { return entry.is_idle(); }) == 0) throw;
    }
    return prepare(calls);
  }

  std::shared_ptr<Group> prepare(std::span<const Call> calls) {
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
    if (tuner) tuner->attach(*group);
    return group;
  }

  PlanDecision decide(const Call& call) const {
    return plan_for(call, job.config(), job.choice(), job.hosts(), costs);
  }

  /// `alone`: as what was learned of such calls says, if the tuner attends to it.
  std::shared_ptr<Operation> prepare_one(const Call& call, bool alone) {
    PlanDecision decision{Algorithm::automatic, slice_bytes_max(job.config()), 0, {}};
    const bool is_collective = !traits_of(call.collective).is_point_to_point();
    if (is_collective) decision = decide(call);
    return driver->locked([&] {
      if (alone && is_collective && tuner) decision = tuner->best_for(call, decision);
      return engine.prepare(call, schedule_of(call, decision.algorithm), decision.algorithm,
                            decision.slice_bytes);
    });
  }

  Schedule schedule_of(const Call& call, Algorithm algorithm) const {
    if (!traits_of(call.collective).is_point_to_point())
      return build_schedule({call.collective, algorithm, job.size(), call.root,
                             grouping_for(algorithm, job.size(), job.hosts(), costs.racks)},
                            job.rank());
    Schedule schedule{job.size(), job.rank(), 1, 0, {}, {}};
    schedule.steps.push_back(
        {call.collective == Collective::send ? StepOp::send_copy : StepOp::recv_copy,
         static_cast<uint8_t>(call.channel), call.root});
    return schedule;
  }

  /// `calls` run as one, on a vector that holds them one behind the other.
  std::shared_ptr<Operation> prepare_fused(std::span<const Call* const> calls) {
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

  AutoTuner::Parts parts_for_tuner() {
    return {.rank = job.rank(),
            .ranks = job.size(),
            .clock = &clock,
            .plan = [this](const Call& call) { return decide(call); },
            .equip =
                [this](Operation& operation, Algorithm algorithm, size_t slice_bytes) {
                  engine.equip(operation, schedule_of(operation.call, algorithm), algorithm,
                               slice_bytes);
                },
            .prepare =
                [this](const Call& call, Algorithm algorithm, size_t slice_bytes) {
                  return engine.prepare(call, schedule_of(call, algorithm), algorithm, slice_bytes);
                }};
  }

  std::shared_ptr<RegisteredMemory> allocate(size_t bytes) {
    driver->throw_if_stopped();
    auto memory =
        std::make_shared<RegisteredMemory>(bytes, job.transports(), bind_memory_near_caller);
    driver->locked([&] {
      for (Transport* transport : job.transports()) memory->register_with(*transport);
    });
    memories.add(memory);
    return memory;
  }

  struct Cached {
    std::vector<Call> calls;
    std::shared_ptr<Group> group;

    /// Nothing is under way. A Work that was not waited for must not see the next run.
    bool is_idle() const { return group.use_count() == 1 && group->is_finished(); }
  };

  MonotonicClock clock;
  MemoryRegistry memories;
  Job job;
  std::byte barrier_byte{};
  Engine engine;
  std::shared_ptr<Driver> driver;
  Costs costs;
  std::weak_ptr<Impl> whole;  // of a part, as are its members: numbers in the whole
  std::vector<int> members;
  Blame blamed;
  bool left = false;
  std::optional<AutoTuner> tuner;  // where plans learn; goes after the groups
  std::mutex cache_mutex;          // guards cache; taken before the engine's
  std::list<Cached> cache;         // most recently used first
};

namespace {

/// A Buffer's memory, and what it is registered with.
struct KeptMemory {
  ~KeptMemory() {
    if (!owner->driver->is_forked()) return;
    abandon(std::move(memory));
    abandon(std::move(owner));
  }

  std::shared_ptr<Communicator::Impl> owner;
  std::shared_ptr<RegisteredMemory> memory;  // goes first
};

}  // namespace

Communicator::Communicator(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Communicator::~Communicator() {
  if (impl_->driver->is_forked())
    abandon(std::move(impl_));
  else
    impl_->close();
}

std::unique_ptr<Communicator> Communicator::create(const Options& options) {
  const auto impl = std::make_shared<Impl>(options);
  auto communicator = std::make_unique<Communicator>(impl);
  impl->set_costs(find_costs(*communicator, impl->job));
  return communicator;
}

int Communicator::rank() const {
  return impl_->job.rank();
}
int Communicator::size() const {
  return impl_->job.size();
}
int Communicator::local_rank() const {
  return impl_->job.local_rank();
}
int Communicator::local_size() const {
  return impl_->job.local_size();
}
std::string Communicator::transport() const {
  return names_of(impl_->job.choice());
}

void Communicator::run(const Call& call, std::optional<std::chrono::nanoseconds> timeout) {
  const auto group = impl_->start(std::span(&call, 1), false);
  impl_->driver->wait(*group, timeout ? timeout->count() : impl_->driver->timeout_ns());
}

Work Communicator::start(const Call& call) {
  return start_group(std::span(&call, 1));
}

Work Communicator::start_group(std::span<const Call> calls) {
  return {impl_, impl_->start(calls, true)};
}

Plan Communicator::plan(const Call& call) {
  impl_->check(std::span(&call, 1));
  return {impl_, impl_->prepare(std::span(&call, 1))};
}

void Communicator::barrier() {
  Call call =
      Call::all_reduce(std::span(reinterpret_cast<uint8_t*>(&impl_->barrier_byte), 1), kMax);
  call.collective = Collective::barrier;
  run(call);
}

std::optional<int> Communicator::next_sender(std::chrono::nanoseconds limit, int channel) {
  require_channel("next_sender", channel);
  return impl_->driver->next_sender(channel, limit.count());
}

void Communicator::interrupt_next_sender(int channel) {
  require_channel("interrupt_next_sender", channel);
  impl_->driver->interrupt_next_sender(channel);
}

std::optional<int64_t> Communicator::culprit_process() const {
  const Failure* failure = impl_->job.monitor().failure();
  if (failure == nullptr || failure->peer == rank()) return {};
  if (failure->code != ErrorCode::aborted && failure->code != ErrorCode::peer_lost) return {};
  return impl_->job.local_process(failure->peer);
}

// Splitting is two all_gathers: of color and key, from which every rank computes the members of its
// part and their order; and of unique ids, since the first member of each part opens a rendezvous.
// Where that fails the unique id is empty: an error on each rank of the part, rather than a wait.
// The part's key is made of the whole's, which never travels, and of a nonce. A part is a
// communicator like any other, with sockets, control tree and threads of its own: its messages,
// deadlines and failures never mix with those of the whole.
std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  Options common;  // what the part takes over: all except who and where
  visit_settings(common, impl_->job.config(), [](auto& option, const auto& setting) {
    if constexpr (std::is_same_v<decltype(setting), const Secret&>)
      option = setting.empty() ? "" : bootstrap::part_secret(setting.text(), "of a split");
    else
      option = setting;
  });
  const auto ranks = static_cast<size_t>(size());
  const std::array<int32_t, 2> own{color, key};
  std::vector<int32_t> colors_and_keys(2 * ranks);
  all_gather(own, colors_and_keys);
  const std::vector<int> members = members_of(colors_and_keys, color);
  const bool leads = color >= 0 && members[0] == rank();

  std::optional<Rendezvous> rendezvous;
  std::optional<Error> failure;
  std::vector<char> unique_id(kUniqueIdBytes), unique_ids(ranks * kUniqueIdBytes);
  if (leads) {
    // The others are told that there is no unique id: they must not wait for one.
    try {
      rendezvous.emplace(open_rendezvous(common, impl_->job.is_on_loopback(), unique_id));
    } catch (const Error& error) {
      failure = error;
    }
  }
  all_gather(unique_id, unique_ids);
  if (failure) throw Error(*failure);
  if (color < 0) return nullptr;

  const auto part_size = static_cast<int>(members.size());
  const auto part_rank = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
  const char* leaders = unique_ids.data() + static_cast<size_t>(members[0]) * kUniqueIdBytes;
  if (*leaders == 0)
    throw impl_->blame({ErrorCode::unavailable, "split",
                        fmt::format("rank {} could not open a rendezvous", members[0]),
                        fmt::format("see the output of rank {}", members[0]), rank(), members[0]});
  Options options = leads ? rendezvous->options(part_rank, part_size, common)
                          : Rendezvous::options(leaders, part_rank, part_size, common);
  try {
    const auto part = std::make_shared<Impl>(options, &impl_->job.monitor());
    part->set_costs(costs_of_part(part->job, members, impl_->job, impl_->costs));
    part->whole = impl_;
    part->members = members;
    return std::make_unique<Communicator>(part);
  } catch (const Error& error) {
    const Error seen = seen_from_whole(error.failure(), members, impl_->job.monitor());
    throw impl_->blame(seen.failure());
  }
}

void Communicator::leave() {
  impl_->leave();
}

// A part that ends since the whole has failed says so, rather than that it ends.
void Communicator::abort(const std::string& reason) {
  impl_->driver->throw_if_forked();
  const auto whole = impl_->whole.lock();
  if (const Failure* of_whole = whole ? whole->job.monitor().failure() : nullptr)
    return impl_->job.monitor().report(seen_from_part(*of_whole, impl_->members));
  impl_->job.monitor().report({ErrorCode::aborted, "abort",
                               fmt::format("rank {} aborted the job: {}", rank(), reason), "",
                               rank(), rank()});
}

std::shared_ptr<void> Communicator::allocate_elements(size_t count, size_t element_bytes) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, element_bytes, &bytes))
    throw Error(ErrorCode::invalid_argument, "allocate",
                fmt::format("{} elements of {} bytes are more than an address space holds", count,
                            element_bytes));
  const std::shared_ptr<KeptMemory> kept(new KeptMemory{impl_, impl_->allocate(bytes)});
  return {kept, kept->memory->data()};
}

}  // namespace ropewalk

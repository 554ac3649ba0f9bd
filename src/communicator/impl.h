// Everything below the public surface of a communicator.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "bootstrap/part.h"
#include "communicator/auto_tuner.h"
#include "communicator/committed.h"
#include "communicator/part.h"
#include "communicator/session.h"
#include "job/costs.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// A Communicator shares it with the Works, Plans and Buffers that it gave out: they may outlive
/// it. Threads: as Communicator, unless said otherwise.
class Communicator::Impl {
 public:
  /// Of the whole job, which is joined; of a next epoch with `predecessor`. Throws Error.
  explicit Impl(const Options& options,
                std::shared_ptr<bootstrap::Predecessor> predecessor = nullptr);
  /// Of the ranks `ranks` of `whole`, which are `members`; `part` is theirs, from
  /// Session::add_part. Nothing may be sent before all have made theirs. Throws Error.
  Impl(const std::shared_ptr<Impl>& whole, const std::vector<int>& ranks, Members members,
       std::shared_ptr<bootstrap::Part> part, int64_t timeout_ns);
  /// Of the epoch that follows that of `former` over its connections: of its ranks `ranks`, which
  /// are `members`; `departed` are the others, as the job numbers them. Throws Error.
  Impl(const Impl& former, const std::vector<int>& ranks, Members members,
       std::shared_ptr<EpochState> epoch, const std::vector<int>& departed);
  ~Impl();

  int rank() const { return members.rank; }
  int size() const { return members.size(); }
  const Config& config() const { return session->job.config(); }
  Monitor& monitor() const;

  /// As Communicator::leave.
  void leave();
  /// Of a part that was not made everywhere: says nothing.
  void forget();
  /// States that were sent may be on their way; whoever waits for them goes on.
  void forget_state_part();
  uint32_t calls_made() {
    return driver->locked([this] { return engine.failures().calls().count; });
  }
  /// Returns it as what to throw. Thread-safe.
  Error blame(const Failure& failure) {
    blamed.set(failure, calls_made());
    return Error(failure);
  }
  /// `leave` where there is nobody to throw to. Prepared operations hold staging memory, which
  /// would live as long as the last handle.
  void close() noexcept;

  /// What the planner reckons with. Before the first collective, alike on all ranks.
  void set_costs(const Costs& agreed);

  void check(std::span<const Call> calls) const;
  /// Starts `calls`: one alone, or several as a group. `in_background`: as Driver::start.
  std::shared_ptr<Group> start(std::span<const Call> calls, bool in_background);
  /// As Communicator::run_beside.
  void run_beside(const Call& call, const std::function<void()>& meanwhile);
  std::shared_ptr<Group> prepare(std::span<const Call> calls);
  std::shared_ptr<RegisteredMemory> allocate(size_t bytes);
  Call barrier_call();
  /// `error`, why this rank cannot make a call, as what to throw. Peers may be in the call already:
  /// where it is something that this rank lacks they fail with its reason instead of waiting.
  Error lacks(const Error& error);

  const std::shared_ptr<Session> session;
  const std::shared_ptr<EpochState> epoch;
  const std::shared_ptr<bootstrap::Part> part;  // of the epoch; null: all of it
  const Members members;
  const TransportChoice choice;
  std::byte barrier_byte{};
  const OwnedEngine owned_engine;
  Engine& engine = *owned_engine;
  const std::shared_ptr<Driver> driver;
  Costs costs;
  /// This rank has completed measuring them. Where all ranks have, they are equal on all.
  bool costs_are_found = false;
  const std::weak_ptr<Impl> whole;        // that was split; of a part
  const std::vector<int> ranks_in_whole;  // its members there
  Blame blamed;
  CommittedCalls committed;                  // of the whole job's
  std::unique_ptr<Communicator> state_part;  // in which states go; made when the first does

 private:
  void report_exception();
  void leave_part(const CallsMade& calls);
  void tell_rest();
  void leave_job();
  std::shared_ptr<Group> find_last(std::span<const Call> calls);
  std::shared_ptr<Group> find_or_fail(std::span<const Call> calls);
  std::shared_ptr<Group> find(std::span<const Call> calls);
  std::shared_ptr<Group> prepare_making_room(std::span<const Call> calls);
  PlanDecision decide(const Call& call) const;
  std::shared_ptr<Operation> prepare_one(const Call& call, bool alone);
  Schedule schedule_of(const Call& call, Algorithm algorithm) const;
  std::shared_ptr<Operation> prepare_fused(std::span<const Call* const> calls);
  AutoTuner::Parts parts_for_tuner();
  /// Where plans can learn: between hosts, if that is wanted.
  void have_tuner();

  struct Cached {
    std::vector<Call> calls;
    std::shared_ptr<Group> group;

    /// Nothing is under way. A Work that was not waited for must not see the next run.
    bool is_idle() const { return group.use_count() == 1 && group->is_finished(); }
  };

  /// A group that run_beside keeps for the next such call, which takes no lock then. Its entry in
  /// the cache is not idle, so nobody else runs it.
  struct CachedGroup {
    Call call;
    std::shared_ptr<Group> group;
  };
  void keep(std::unique_ptr<CachedGroup> kept) { delete kept_.exchange(kept.release()); }

  const int exceptions_ = std::uncaught_exceptions();  // when this was made
  bool left_ = false;
  std::optional<AutoTuner> tuner_;           // where plans learn; goes after the groups
  std::mutex cache_mutex_;                   // guards cache_; taken before the engine's
  std::list<Cached> cache_;                  // most recently used first
  std::atomic<CachedGroup*> kept_{nullptr};  // owned; null while a call runs it
};

/// What those of `whole` say of its ranks `ranks`, which are `members` of `job`.
Costs inherited_costs(const Communicator::Impl& whole, const Job& job, const Members& members,
                      const TransportChoice& choice, const std::vector<int>& ranks);

}  // namespace ropewalk

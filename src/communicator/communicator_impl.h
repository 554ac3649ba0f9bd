// Everything below the public surface of a communicator, wired together. A Communicator shares it
// with the Works, Plans and Buffers that it gave out: they may outlive it. Members are destroyed in
// reverse order: the driver stops first, and transports go after the engine.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/driver.h"
#include "engine/engine.h"
#include "job/costs.h"
#include "job/job.h"
#include "memory/memory_registry.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

class Communicator::Impl {
 public:
  /// Joins the job. Throws Error.
  explicit Impl(const Options& options);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int rank() const { return job_.rank(); }
  int size() const { return job_.size(); }
  int local_rank() const { return job_.local_rank(); }
  int local_size() const { return job_.local_size(); }
  std::string transport() const { return job_.transport_names(); }
  /// What a part of this communicator takes over.
  Options options() const;
  /// What the planner reckons with. To be set before the first collective, alike on all ranks.
  const Costs& costs() const { return costs_; }
  void set_costs(const Costs& costs);
  const Job& job() const { return job_; }

  std::shared_ptr<Group> plan(const Call& call);
  /// Starts `calls`: one alone, or several as a group. `in_background`: as Driver::start.
  std::shared_ptr<Group> start(std::span<const Call> calls, bool in_background);
  std::shared_ptr<RegisteredMemory> allocate(size_t bytes);
  void abort(const std::string& reason);
  std::optional<int64_t> culprit_process() const;
  void leave();
  /// The same where there is nobody to throw to, and gives up what was prepared.
  void close() noexcept;

  const std::shared_ptr<Driver>& driver() { return driver_; }
  Call barrier_call();

 private:
  struct Cached {
    std::vector<Call> calls;
    std::shared_ptr<Group> group;
  };

  void start_engine();
  void check(std::span<const Call> calls) const;
  /// A prepared operation for `calls`, from the cache where an idle one of equal calls is there.
  std::shared_ptr<Group> cached(std::span<const Call> calls);
  std::shared_ptr<Group> cached_or_failed(std::span<const Call> calls);
  std::shared_ptr<Group> prepare_making_room(std::span<const Call> calls);
  std::shared_ptr<Group> prepare(std::span<const Call> calls);
  std::shared_ptr<Operation> prepare_one(const Call& call);
  /// `calls` run as one, on a vector that holds them one behind the other.
  void add_fused(Group& group, std::span<const Call* const> calls);

  MonotonicClock clock_;
  MemoryRegistry memories_;
  Job job_;
  Costs costs_;
  std::byte barrier_byte_{};
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Driver> driver_;
  bool left_ = false;
  std::mutex cache_mutex_;   // guards cache_; taken before the engine's
  std::list<Cached> cache_;  // most recently used first
};

}  // namespace ropewalk

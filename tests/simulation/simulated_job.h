// The real engine on every rank, over a fake network in virtual time, in one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "transports/fake/fake_fabric.h"

namespace ropewalk::testing {

/// The monitors of all ranks: a failure reported on one shows on the others after a random delay,
/// as does the death of a rank.
class SimulatedMonitors {
 public:
  SimulatedMonitors(int ranks, const Clock& clock, uint64_t seed);
  ~SimulatedMonitors();
  Monitor& of(int rank);
  void tell_of_death(int rank, int64_t at_ns);

 private:
  class One;
  int64_t delay_ns();
  void spread(const Failure& failure, int from, int64_t at_ns);

  const Clock& clock_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<One>> monitors_;
};

class SimulatedJob {
 public:
  static constexpr int64_t kTimeout_ns = 10'000'000'000;

  SimulatedJob(int ranks, uint64_t seed, const FakeOptions& options);
  ~SimulatedJob();

  int ranks() const { return ranks_; }
  Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  bool alive(int rank) const { return fabric_.alive(rank); }
  MemoryRegistry& memories(int rank) { return *registries_[static_cast<size_t>(rank)]; }
  Transport& transport(int rank) { return fabric_.transport(rank); }
  const Clock& clock() const { return fabric_.clock(); }

  /// Runs until every living rank's `done(rank)` holds or it has failed. `step(rank)` is called
  /// between turns. Returns why it hangs, if it does: no event is pending, or virtual time runs on
  /// far beyond every deadline.
  std::string run(const std::function<bool(int)>& done, const std::function<void(int)>& step);

 private:
  bool turn();
  void poll_control();

  const int ranks_;
  std::mt19937_64 random_;
  FakeFabric fabric_;
  SimulatedMonitors monitors_;
  std::vector<std::unique_ptr<MemoryRegistry>> registries_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace ropewalk::testing

// The real engine on every rank, over a fake network in virtual time, in one thread.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/job_monitor.h"
#include "tests/support/lone_engine.h"
#include "transports/fake/fake_fabric.h"

namespace ropewalk::testing {

using bootstrap::JobMonitor;

/// The monitors of all ranks, and the control threads that pass failures, questions and answers on,
/// each after a random delay. Who is stopped passes nothing on, and hears of it when it goes on.
class SimulatedMonitors {
 public:
  SimulatedMonitors(int ranks, const Clock& clock, uint64_t seed);
  JobMonitor& of(int rank) { return *monitors_[static_cast<size_t>(rank)]; }
  void tell_of_death(int rank, int64_t at_ns);
  /// Lets everything happen that is due. `is_awake(rank)`; who is dead is not.
  void advance(const std::function<bool(int)>& is_awake);
  /// From `from_ns` until then nothing passes between the ranks in `part` and the others.
  void cut(const std::set<int>& part, int64_t from_ns, int64_t until_ns) {
    part_ = part;
    cut_ns_ = {from_ns, until_ns};
  }
  /// The rank tells all others that it leaves after such calls.
  void leave(int rank, const CallsMade& calls);

 private:
  struct Event {
    int64_t at_ns;
    int from, to;
    std::function<void(JobMonitor&)> happen;
  };
  int64_t delay_ns();
  void send(int from, int to, std::function<void(JobMonitor&)> happen);
  void control(int rank);
  void answer(int rank);
  bool passes(const Event& event) const;

  const Clock& clock_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<JobMonitor>> monitors_;
  std::vector<bool> spread_, probes_;  // by rank
  std::vector<Event> events_;
  std::set<int> part_;
  std::pair<int64_t, int64_t> cut_ns_;
};

class SimulatedJob {
 public:
  static constexpr int64_t kTimeout_ns = 10'000'000'000;
  static constexpr int64_t kForGood_ns = std::numeric_limits<int64_t>::max();

  SimulatedJob(int ranks, uint64_t seed, const FakeOptions& options);
  ~SimulatedJob();

  /// From `from_ns` on until then neither the rank's program nor its control thread runs.
  void stop(int rank, int64_t from_ns, int64_t until_ns) { stops_[rank] = {from_ns, until_ns}; }
  /// The control tree falls into two parts, without a link; until then, or for good.
  void cut_control(const std::set<int>& part, int64_t from_ns = 0, int64_t until_ns = kForGood_ns) {
    monitors_.cut(part, from_ns, until_ns);
  }
  /// What the rank sends from now on arrives after `until_ns`. Control is not delayed.
  void hold_back(int rank, int64_t until_ns);
  /// The rank leaves, as Communicator::leave does. It has nothing under way.
  void leave(int rank);

  int ranks() const { return ranks_; }
  LoneEngine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
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
  bool is_awake(int rank) const;
  /// It is dead, or stopped for good.
  bool is_gone(int rank) const;

  const int ranks_;
  std::mt19937_64 random_;
  FakeFabric fabric_;
  SimulatedMonitors monitors_;
  std::map<int, std::pair<int64_t, int64_t>> stops_;  // by rank
  std::vector<std::unique_ptr<MemoryRegistry>> registries_;
  std::vector<std::unique_ptr<LoneEngine>> engines_;
};

}  // namespace ropewalk::testing

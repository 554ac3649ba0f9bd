// An engine of a whole job, with a worker that it shares with no other.
#pragma once

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/driver.h"

namespace ropewalk {

struct LoneWorker {
  Worker lone_worker;
};

/// Constructed before the Engine, as it must be.
class LoneEngine : private LoneWorker, public Engine {
 public:
  /// `transports[route[peer]]` reaches `peer`. All references outlive the engine.
  LoneEngine(int rank, int size, std::vector<Transport*> transports, std::vector<int> route,
             MemoryRegistry& memories, Monitor& monitor, const Clock& clock)
      : LoneWorker{{rank, std::move(transports), std::move(route), monitor}},
        Engine(lone_worker, 0, rank, all_ranks(size), memories, monitor, clock) {}

  bool progress() { return lone_worker.progress(); }

 private:
  static std::vector<int> all_ranks(int size) {
    std::vector<int> ranks(static_cast<size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
};

/// Of such an engine.
class LoneDriver : public Driver {
 public:
  LoneDriver(Engine& engine, const Clock& clock, const ProgressOptions& options)
      : Driver(std::make_shared<Progress>(engine.worker(), clock, -1, options), engine,
               30'000'000'000) {}
};

}  // namespace ropewalk

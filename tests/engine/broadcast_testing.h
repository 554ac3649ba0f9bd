// For tests of engines without a job.
#pragma once

#include <memory>
#include <span>

#include "tests/support/lone_engine.h"

namespace ropewalk {

/// This rank's side of a broadcast of `data` from `root`, of two ranks.
inline std::shared_ptr<Operation> prepare_broadcast(Engine& engine, std::span<float> data,
                                                    int root) {
  Call call;
  call.collective = Collective::broadcast;
  call.root = root;
  call.in = call.out = data.data();
  call.count = data.size();
  const ScheduleKey key{Collective::broadcast, Algorithm::direct, 2, root, {}};
  return engine.prepare(call, build_schedule(key, engine.links().rank()), Algorithm::direct, 4096);
}

}  // namespace ropewalk

// How the ranks of a process group meet: through torch's store, or as a part of the default group.
#pragma once

#include <ropewalk/communicator.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "group.h"

namespace ropewalk::pytorch {

struct Joined {
  std::unique_ptr<Communicator> comm;
  std::string job;  // names it, to all of its ranks; empty for a job of one, and for a part
};

/// As a job of its own, whose rank 0 tells through `store` where it is. Throws Error.
Joined join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
            std::chrono::milliseconds timeout);

/// `global_ranks`: by rank, the rank in the default group, whose connections and threads the group
/// then shares, as long as all are in that; empty: this is the default group; nothing: neither.
/// `store` is the group's own. Throws Error.
Joined join_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                  std::chrono::milliseconds timeout,
                  const std::optional<std::vector<int>>& global_ranks);

}  // namespace ropewalk::pytorch

// A job over shared memory whose ranks all belong to one thread, which starts a call on each and
// then asks them in turn whether it has ended: so that nobody ever waits.
#pragma once

#include <memory>
#include <vector>

#include "ropewalk/communicator.h"

namespace ropewalk::testing {

enum class CallerMemory { registered, plain, mixed };  // mixed: registered on even ranks

/// One call on all ranks, with its buffers.
class PlannedCall {
 public:
  /// `bytes`: of the whole vector; of each rank's part where there are parts.
  PlannedCall(std::vector<std::unique_ptr<Communicator>>& ranks, Collective collective,
              size_t bytes, CallerMemory memory);

  /// Runs once, on all ranks.
  void run();
  /// Whether `out` of every rank is as it should be after `run`: every rank's input is 1, and ops
  /// give the greatest.
  bool is_right() const;

 private:
  struct Rank {
    Buffer<int> registered;
    std::vector<int> plain;
    std::span<int> out;
    Plan plan;
  };
  std::vector<Rank> ranks_;
};

/// Joins `ranks` ranks, without progress threads.
std::vector<std::unique_ptr<Communicator>> join_in_one_thread(int ranks);
/// Leaves. Plans of these ranks must be gone.
void leave_in_one_thread(std::vector<std::unique_ptr<Communicator>>& ranks);

}  // namespace ropewalk::testing

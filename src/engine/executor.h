// One way to run a schedule that is bound to memory. Three exist: sequential, pipelined and
// owner-computes. All ranks choose the owner executor alike; the other two look the same to peers.
//
// Owned by an Operation; used by the engine, under its lock. A run allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/link.h"
#include "engine/program.h"

namespace ropewalk {

class FailureDetector;
class LinkTable;
class MemoryBinder;
class OperationQueues;

/// A peer that an operation waits for, and for what.
struct Blocker {
  Link* link = nullptr;
  bool to_take = false;  // what this rank sends; else to send
  int32_t block = 0;
  uint32_t done = 0, slices = 1;
};

/// What executors use of the engine, which outlives their runs.
struct EngineParts {
  LinkTable& links;
  FailureDetector& failures;
  const OperationQueues& queues;
};

class Executor {
 public:
  virtual ~Executor() = default;

  /// Looks up, or makes, the registrations by which peers and transports reach its memory. Requires
  /// that no run is under way. Throws Error.
  virtual void bind(MemoryBinder& binder) = 0;
  /// Begins a run, whose messages travel in the streams of `context`. Requires that the last run
  /// has finished.
  virtual void begin(int context) = 0;
  /// Moves what can be moved; true when anything did. Requires a run that has begun.
  virtual bool progress() = 0;
  virtual bool is_finished() const = 0;
  /// What a run that has begun waits for, one after the other, from position 0: moves `position`
  /// behind the answer. Nothing where there is no more, or it waits for this rank's own steps.
  virtual std::optional<Blocker> next_blocker(size_t& position) const = 0;
};

/// The links that an executor uses: they are made when an operation first needs them.
class RequiredLinks {
 public:
  void add(Link& link) { links_.push_back(&link); }
  /// Begins connecting; true once all are ready.
  bool connect() {
    if (ready_) return true;
    bool all = true;
    for (Link* link : links_) {
      link->connect();
      all &= link->ready();
    }
    return ready_ = all;
  }
  bool ready() const { return ready_; }
  const std::vector<Link*>& links() const { return links_; }

 private:
  std::vector<Link*> links_;
  bool ready_ = false;  // stays so
};

/// Where slice `slice` begins, and how many of the `bytes` of a message it has.
inline size_t slice_begin(const Program& program, uint32_t slice) {
  return static_cast<size_t>(slice) * program.slice_bytes;
}
inline size_t slice_length(size_t bytes, size_t slice_bytes, uint32_t slice) {
  return std::min(slice_bytes, bytes - slice * slice_bytes);
}
inline size_t slice_length(const Program& program, const ProgramStep& step, uint32_t slice) {
  return slice_length(step.bytes, program.slice_bytes, slice);
}

/// Stores, or adds, `data`, a slice that has arrived for a receiving step.
void apply(const Program& program, const ProgramStep& step, uint32_t slice, const std::byte* data);
/// Runs a slice of a step that moves nothing between ranks.
void run_local(const Program& program, const ProgramStep& step, uint32_t slice);

}  // namespace ropewalk

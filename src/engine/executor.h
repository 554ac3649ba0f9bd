// One way to run a schedule that is bound to memory. Three exist: sequential, pipelined and
// owner-computes. All ranks choose the owner executor alike; the other two look the same to peers.
//
// Owned by an Operation; used by the engine, under its lock. A run allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/link.h"

namespace ropewalk {

class FailureDetector;
class MemoryBinder;
struct Operation;
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
  /// No transport reads its memory any more. Else its put_dones are still to come.
  virtual bool is_quiet() const { return true; }
  /// Adds what a run that has begun waits for: nothing where it waits for this rank's own steps. At
  /// most one per stream.
  virtual void find_blockers(std::vector<Blocker>& blockers) const = 0;

 protected:
  /// `operation` owns it.
  Executor(const EngineParts& engine, const Operation& operation)
      : engine_(engine), operation_(operation) {}
  /// The link with `peer`, which a run needs: it is made when an operation first does.
  Link& require_link(int peer) {
    Link& link = engine_.links.to(peer);
    if (std::ranges::find(links_, &link) == links_.end()) links_.push_back(&link);
    return link;
  }
  /// Begins connecting; true once all links are ready.
  bool connect() {
    if (connected_) return true;
    for (Link* link : links_) link->connect();
    return connected_ = std::ranges::all_of(links_, [](Link* link) { return link->ready(); });
  }

  const EngineParts engine_;
  const Operation& operation_;
  std::vector<Link*> links_;
  bool connected_ = false;  // stays so
};

}  // namespace ropewalk

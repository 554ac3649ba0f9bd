// Runs the operations of one communicator: one loop for every algorithm and every transport.
// Executors say how a schedule is run; the engine gives them their turns. The worker, which the
// engines of all communicators share, polls the transports.
//
// Threads: none of its own. One thread at a time calls it (the Driver locks). Nothing here blocks;
// after `prepare`, and once links stand, nothing allocates or makes a system call of its own.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/failure_detector.h"
#include "engine/worker.h"
#include "memory/memory_registry.h"

namespace ropewalk {

class Engine {
 public:
  /// Of the communicator of that number, whose ranks are `members` of the worker's, and this one
  /// `rank` of it; `monitor` is the communicator's. All references outlive the engine.
  Engine(Worker& worker, uint16_t communicator, int rank, std::vector<int> members,
         MemoryRegistry& memories, Monitor& monitor, const Clock& clock);
  ~Engine() { worker_.remove(*this); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Worker& worker() { return worker_; }
  /// Its communicator is the whole job's, or what is left of that: an epoch's.
  bool is_whole() const { return is_of_epoch(links_.communicator()); }
  LinkTable& links() { return links_; }
  const LinkTable& links() const { return links_; }
  FailureDetector& failures() { return failures_; }
  const FailureDetector& failures() const { return failures_; }

  /// Binds `call` to `schedule`; throws Error. Allocates everything that runs will need.
  std::shared_ptr<Operation> prepare(const Call& call, const Schedule& schedule,
                                     Algorithm algorithm, size_t slice_bytes);

  /// Between runs: from the next one on `operation` runs so. Throws what `prepare` throws.
  void rebind(Operation& operation, const Schedule& schedule, Algorithm algorithm,
              size_t slice_bytes);

  /// Begins a run. The operation must be idle or done, and stay alive until done. Throws Error, and
  /// the job fails, where its memory must be registered again and cannot be.
  void start(Operation& operation);

  /// A turn of all operations that may run. True when anything moved. Does nothing once the
  /// communicator has failed; that the job has, the worker knows.
  bool advance();
  bool has_failed() const {
    return failures_.has_failed() || (!is_whole() && failures_.failure() != nullptr);
  }
  /// True while operations are under way.
  bool has_operations() const { return !queues_.active().empty(); }
  /// The oldest operation under way in which peers may wait for this rank: any except a receive.
  /// Null where there is none.
  const Operation* owed_to_peers() const;
  /// Tells the peers that nothing more comes. Requires that nothing is owed to them.
  void end_links();
  /// Where others of the job go on: moves nothing any more, and tells the peers. To be repeated
  /// until it says true: then no peer writes memory of its operations any more, and no transport
  /// reads it.
  /// `trusts_leaves`: of a peer that has left, what it sent has arrived by now.
  bool quiesce(bool trusts_leaves);
  /// A peer for which quiesce still waits; -1: none.
  int pending_peer(bool trusts_leaves) const;

  /// As Communicator::next_sender, without waiting: fails the job where nobody can send any more.
  /// Goes round the peers, so that all get their turn.
  std::optional<int> next_sender(int channel);
  /// Whether next_sender would tell one.
  bool has_message(int channel) const {
    return std::ranges::any_of(
        links_.open(), [&](Link* link) { return has_unexpected_message(*link, queues_, channel); });
  }

 private:
  void start_behind(Operation& operation);
  void finish(size_t active_index);
  void bind(Operation& operation);

  Worker& worker_;
  MemoryRegistry& memories_;
  const Clock& clock_;
  LinkTable links_;
  OperationQueues queues_;
  FailureDetector failures_;
  bool has_ended_ = false;  // the peers have been told
  size_t last_sender_ = 0;  // index in links_.open() of the link that next_sender() answered last
};

}  // namespace ropewalk

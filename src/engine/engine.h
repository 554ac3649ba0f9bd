// Runs operations: one loop for every algorithm and every transport. Executors say how a schedule
// is run; the engine gives them their turns, polls the transports and books what these bring.
//
// A turn (progress) lets each active operation's executor do what it can, and sends the credits and
// `consumed` notices that links owe; then it polls the transports and does the same again if there
// was anything. So a start sends before it looks for what others sent.
//
// Threads: none of its own. One thread at a time calls it (the Driver locks). Nothing here blocks;
// after `prepare`, and once links stand, nothing allocates or makes a system call of its own.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/failure_detector.h"
#include "memory/memory_registry.h"

namespace ropewalk {

class Engine {
 public:
  /// `transports[route[peer]]` reaches `peer`. All references outlive the engine.
  Engine(int rank, int size, std::vector<Transport*> transports, std::vector<int> route,
         MemoryRegistry& memories, Monitor& monitor, const Clock& clock);

  LinkTable& links() { return links_; }
  FailureDetector& failures() { return failures_; }
  const FailureDetector& failures() const { return failures_; }

  /// Binds `call` to `schedule`; throws Error. Allocates everything that runs will need.
  std::shared_ptr<Operation> prepare(const Call& call, const Schedule& schedule,
                                     Algorithm algorithm, size_t slice_bytes);

  /// Between runs: from the next one on `operation` runs so. Throws what `prepare` throws.
  void equip(Operation& operation, const Schedule& schedule, Algorithm algorithm,
             size_t slice_bytes);

  /// Begins a run. The operation must be idle or done, and stay alive until done. Throws Error, and
  /// the job fails, where its memory must be registered again and cannot be.
  void start(Operation& operation);

  /// Moves what can be moved. True when anything did. Does nothing once the job has failed.
  bool progress();
  /// Calls `tell(group)` for each group that has ended since the last call. It may have been
  /// destroyed.
  template <class Tell>
  void tell_ended(const Tell& tell) {
    for (const Group* group : ended_) tell(group);
    ended_.clear();
  }

  /// True while operations are under way.
  bool has_operations() const { return !queues_.active().empty(); }
  /// The same, or bytes that a transport could not take at once.
  bool has_work() const { return has_operations() || owing_ || links_.has_unsent(); }
  /// The oldest operation under way in which peers may wait for this rank: any except a receive.
  /// Null where there is none.
  const Operation* owed_to_peers() const;
  /// Tells the peers that nothing more comes. Requires that nothing is owed to them.
  void end_links() {
    assert(owed_to_peers() == nullptr);
    links_.end();
    owing_ = !links_.flush();
  }

  /// Gives back peers' memory that they have deregistered, unless an operation is under way, which
  /// may be using it. Cheap where there is none.
  void unmap_deregistered() {
    if (!has_operations()) links_.unmap_deregistered();
  }
  /// After a failure, before callers hear of it and free their memory: transports move nothing any
  /// more. The first call counts.
  void stop_transports() {
    if (std::exchange(stopped_, true)) return;
    for (Transport* transport : links_.transports()) transport->stop();
  }
  /// As Communicator::next_sender, without waiting: fails the job where nobody can send any more.
  /// Goes round the peers, so that all get their turn.
  std::optional<int> next_sender(int channel);
  /// Whether next_sender would tell one.
  bool has_message(int channel) const {
    return std::ranges::any_of(
        links_.open(), [&](Link* link) { return has_unexpected_message(*link, queues_, channel); });
  }

 private:
  bool advance();
  void start_behind(Operation& operation);
  void finish(size_t active_index);
  void bind(Operation& operation);
  bool needs_poll();
  bool poll_transports();
  void on_completion(int transport, const Completion& completion);
  void on_notice(int peer, uint32_t notice);

  MemoryRegistry& memories_;
  const Clock& clock_;
  LinkTable links_;
  OperationQueues queues_;
  FailureDetector failures_;
  bool stopped_ = false;                    // the transports are
  bool owing_ = false;                      // some link owes notices that the transport refused
  std::array<Completion, 64> completions_;  // of one poll
  std::vector<const Group*> ended_;         // see tell_ended()
  uint32_t turns_unpolled_ = 0;
  size_t last_sender_ = 0;  // index in links_.open() of the link that next_sender() answered last
};

}  // namespace ropewalk

// What the communicators of a process share with its peers: transports, connections, and the loop
// that moves their operations.
//
// A turn (progress) lets each operation that may run do what it can, and sends the credits and
// `consumed` notices that links owe; then it polls the transports and does the same again if there
// was anything. So a start sends before it looks for what others sent.
//
// Threads: none of its own. One thread at a time calls it (the Driver locks). Nothing here blocks;
// once connections stand, nothing allocates or makes a system call of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "bootstrap/monitor.h"
#include "engine/connection.h"
#include "engine/staging_pool.h"

namespace ropewalk {

class Engine;
class Group;

class Worker {
 public:
  /// `transports[route[peer]]` reaches `peer` of the job, whose `monitor` this is. All outlive it.
  Worker(int rank, std::vector<Transport*> transports, std::vector<int> route, Monitor& monitor);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Connections& connections() { return connections_; }
  const Connections& connections() const { return connections_; }
  StagingPool& staging() { return staging_; }

  /// `engine` runs operations of a communicator of its own, until `remove`.
  void add(Engine& engine);
  void remove(Engine& engine);
  /// `engine` has an operation under way, and had none.
  void add_busy(Engine& engine) {
    assert(std::ranges::count(busy_, &engine) == 0);
    busy_.push_back(&engine);
  }
  /// Operations of `engine` are not moved any more, and may be gone.
  void drop(Engine& engine) { std::erase(busy_, &engine); }

  /// Moves what can be moved. True when anything did. Does nothing once the job has failed.
  bool progress();
  /// `group` has ended, and may be destroyed.
  void note_ended(const Group& group) { ended_.push_back(&group); }
  /// Calls `tell(group)` for each group that has ended since the last call.
  template <class Tell>
  void tell_ended(const Tell& tell) {
    for (const Group* group : ended_) tell(group);
    ended_.clear();
  }

  void fail(const Failure& failure) { monitor_.report(failure); }
  /// What messages call a rank of the job.
  int rank_in_epoch(int rank) const { return monitor_.rank_in_epoch(rank); }
  /// The job's, as this rank knows; null: none.
  const Failure* failure() const { return monitor_.failure(); }
  bool has_failed() const { return stopped_ || failure() != nullptr; }
  /// True while operations of any communicator are under way.
  bool has_operations() const { return !busy_.empty(); }
  /// The same, or bytes that a transport could not take at once.
  bool has_work() const { return has_operations() || owing_ || connections_.has_unsent(); }
  /// Sends what links owe, as far as transports take it; the rest in the next turns.
  void flush() { owing_ = !connections_.flush(); }

  /// Gives back peers' memory that they have deregistered, unless an operation is under way, which
  /// may be using it. Cheap where there is none.
  void unmap_deregistered() {
    if (!has_operations()) connections_.unmap_deregistered();
  }
  /// After a failure, before callers hear of it and free their memory: transports move nothing any
  /// more. The first call counts.
  void stop_transports() {
    if (std::exchange(stopped_, true)) return;
    for (Transport* transport : connections_.transports()) transport->set_stopped(true);
  }
  bool is_stopped() const { return stopped_; }
  /// Whether connections can be used after that, by those who are left.
  bool can_restart() const {
    return std::ranges::all_of(connections_.transports(), [](Transport* transport) {
      return transport->capabilities().restarts;
    });
  }
  /// Goes on without the peers `departed`, and without what was under way: the monitor's next epoch
  /// has begun. Requires is_stopped and can_restart.
  void restart(const std::vector<int>& departed);

 private:
  bool advance();
  bool needs_poll();
  bool poll();
  void on_completion(int transport, const Completion& completion);
  void on_notice(int peer, uint32_t notice);

  Monitor& monitor_;
  Connections connections_;
  StagingPool staging_;
  std::vector<Engine*> engines_;            // all
  std::vector<Engine*> busy_;               // of these, with operations under way
  bool stopped_ = false;                    // the transports are
  bool owing_ = false;                      // some link owes notices that the transport refused
  std::array<Completion, 64> completions_;  // of one poll
  std::vector<const Group*> ended_;         // see tell_ended()
  uint32_t turns_unpolled_ = 0;
};

}  // namespace ropewalk

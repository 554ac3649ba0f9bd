// One call, prepared: its executor, the memory that it needs beside the caller's, and where a run
// stands. Run by the engine, under its lock.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "engine/staging_pool.h"
#include "schedule/collective.h"

namespace ropewalk {

class Driver;
class Engine;
class Group;
class RunTuner;
struct TunedKind;
struct Operation;

/// Operations that run one after the other, in order of start: only the first of them may run.
using OperationQueue = std::list<Operation*>;

/// The caller's plain memory, registered for one operation.
struct PlainMemory {
  int transport = 0;
  Region region;
  std::unique_ptr<MemoryRegistration> registration;
};

/// The memory of an operation, as transports and peers know it.
struct OperationMemory {
  // Blocks that the caller gave no memory for; of an owner executor, an input, saved before the
  // output overwrites it.
  std::unique_ptr<Staging> scratch;
  std::unique_ptr<std::byte[]> small_scratch;  // of blocks that are copied through slots alone
  std::unique_ptr<Staging> windows;
  std::shared_ptr<RegisteredMemory> packed;  // of a group: all_reduces that run as one
  // Fixed from one bind to the next:
  std::vector<std::weak_ptr<RegisteredMemory>> uses;  // the caller's registered memory
  std::vector<PlainMemory> plain;
  bool bound = false;

  /// Whether the names of the caller's plain memory still mean that memory.
  bool is_current() const {
    return std::ranges::all_of(
        plain, [](const PlainMemory& memory) { return memory.registration->current(); });
  }
  /// Whether the caller's registered memory is still there.
  bool is_there() const {
    return std::ranges::none_of(uses, [](const auto& use) { return use.expired(); });
  }
};

/// A caller's buffer, and its place in a packed vector.
struct Fragment {
  const std::byte* in;
  std::byte* out;
  std::byte* packed;
  size_t bytes;
};

/// When a run had its turn on this rank, and when it ended; 0: not yet. Under the engine's lock.
struct RunTime {
  int64_t begun_ns = 0, ended_ns = 0;
};

struct Operation {
  enum class State : uint8_t { idle, running, done };

  bool is_point_to_point() const { return traits_of(call.collective).is_point_to_point(); }

  // Fixed.
  Call call;
  Algorithm algorithm = Algorithm::automatic;
  Signature signature;  // its sequence is set at every start
  OperationMemory memory;
  std::unique_ptr<Executor> executor;
  std::vector<Fragment> fragments;  // what memory.packed holds
  Group* group = nullptr;           // of which it is a part; null in tests
  RunTuner* tuner = nullptr;        // may be null; it outlives this
  std::shared_ptr<TunedKind> kind;  // the tuner's: of which it is a run

  // Of the run; under the engine's lock, except `state`.
  std::atomic<State> state{State::idle};
  bool begun = false;               // its streams are its own
  OperationQueue* queue = nullptr;  // the one that it was started in
  OperationQueue node{this};        // what goes into it: a start allocates nothing
  int64_t moved_ns = 0;             // when anything last moved
  int64_t probed_ns = 0;
  int64_t seen_ns = 0;             // when it was first seen under way, by who looked
  int64_t awaited_ns = 0;          // since when somebody waits for it, of the next two
  int awaiters = 0;                // threads in a wait for it that has lasted
  bool has_callback = false;       // somebody is told of its end, or that it did not come in time
  bool noted = false;              // others are told what it waits for, when they ask
  std::shared_ptr<RunTime> timed;  // where this run is to be timed; until its end
};

/// Decides anew how each run of an operation is done. Under the engine's lock.
class RunTuner {
 public:
  virtual ~RunTuner() = default;
  /// `operation` is about to start: it may be bound anew (Engine::rebind), and be timed.
  /// Throws Error, which ends the job.
  virtual void before_start(Operation& operation) = 0;
  /// It has been started: what is to be started right behind it; null: nothing. Throws the same.
  virtual std::shared_ptr<Group> after_start(Operation& operation) = 0;
  /// What must end before `operation` may start; null: nothing.
  virtual std::shared_ptr<Group> awaited(const Operation& operation) = 0;
};

/// What a Work or a Plan runs: one operation, or those of a group of calls. All_reduces of a group
/// that are alike may run as one operation on a packed vector.
class Group {
 public:
  /// Before the first start.
  void add(std::shared_ptr<Operation> operation) {
    assert(operation->group == nullptr && operation->state == Operation::State::idle);
    operation->group = this;
    if (!planned_) planned_ = operation->algorithm;
    parts_.push_back(std::move(operation));
  }

  const std::vector<std::shared_ptr<Operation>>& parts() const { return parts_; }
  /// What must end before this may start; null: nothing. Under the engine's lock.
  std::shared_ptr<Group> awaited() const {
    for (const auto& part : parts_)
      if (part->tuner != nullptr)
        if (auto group = part->tuner->awaited(*part)) return group;
    return nullptr;
  }

  // Under the engine's lock:
  /// Starts all parts. Requires is_finished().
  void start(Engine& engine);
  /// A part has ended. True where it was the last: then whoever waits may destroy this at once.
  bool end_part() {
    assert(!is_finished());
    return unfinished_.fetch_sub(1, std::memory_order_release) == 1;
  }

  /// No part is under way. Any thread.
  bool is_finished() const { return unfinished_.load(std::memory_order_acquire) == 0; }
  /// The first that is under way; null where there is none.
  const Operation* unfinished_part() const {
    for (const auto& part : parts_)
      if (part->state.load(std::memory_order_acquire) == Operation::State::running)
        return part.get();
    return nullptr;
  }
  /// The caller's registered memory is still the one that the parts name to peers.
  bool is_valid() const {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->memory.is_there(); });
  }
  /// Of the first part, as it was planned. Requires that there is one. Any thread.
  Algorithm algorithm() const {
    assert(planned_);
    return *planned_;
  }

  std::shared_ptr<Driver> driver;  // by which it is started and waited for
  std::atomic<int> waiters{0};     // threads that wait for it, with limits of their own

 private:
  std::vector<std::shared_ptr<Operation>> parts_;
  std::optional<Algorithm> planned_;   // of the first
  std::atomic<size_t> unfinished_{0};  // parts
};

/// Which operations may run. Collective k runs in context k mod kContexts, and starts when
/// collective k - kContexts has ended here; until then it waits in its context's queue, so that a
/// turn of the engine looks only at what may run, however much has been started. A peer may be
/// ahead: what it sends waits, unread. send and recv have a context of their
/// own: per pair, direction and channel one of them is under way at a time.
///
/// Owned by the engine and used under its lock.
class OperationQueues {
 public:
  explicit OperationQueues(int size) : pairs_(static_cast<size_t>(size)) { active_.reserve(64); }

  /// The first of each queue, in order of their start.
  const std::vector<Operation*>& active() const { return active_; }
  /// Of a send or recv: how many of its channel were started before.
  uint32_t count_message(const Operation& operation) {
    assert(operation.is_point_to_point());
    return channel_of(operation).started++;
  }
  void push(Operation& operation) {
    operation.queue = operation.is_point_to_point()
                          ? &channel_of(operation).queue
                          : &contexts_[operation.signature.sequence % kContexts];
    if (operation.queue->empty()) active_.push_back(&operation);
    operation.queue->splice(operation.queue->end(), operation.node);
  }
  /// Takes active()[index], which has finished, out of its queue: the next one becomes active, as
  /// the last.
  void pop_active(size_t index) {
    Operation& ended = *active_[index];
    OperationQueue& queue = *ended.queue;
    assert(queue.front() == &ended);
    active_.erase(active_.begin() + static_cast<ptrdiff_t>(index));
    ended.node.splice(ended.node.end(), queue, queue.begin());
    if (!queue.empty()) active_.push_back(queue.front());
  }
  /// Whether a recv of `channel` from `peer` has been started and not ended.
  bool has_recv(int peer, int channel) const {
    const auto& pair = pairs_[static_cast<size_t>(peer)];
    return pair && !pair->recvs[static_cast<size_t>(channel)].queue.empty();
  }
  /// A collective that has not ended; null where there is none.
  const Operation* find(uint32_t sequence) const {
    const OperationQueue& queue = contexts_[sequence % kContexts];
    const auto found = std::ranges::find_if(
        queue, [&](const Operation* op) { return op->signature.sequence == sequence; });
    return found == queue.end() ? nullptr : *found;
  }

 private:
  struct Channel {
    uint32_t started = 0;
    OperationQueue queue;
  };
  struct Pair {
    std::array<Channel, kChannels> sends, recvs;
  };
  /// Of a send or recv.
  Channel& channel_of(const Operation& operation) {
    auto& pair = pairs_[static_cast<size_t>(operation.call.root)];
    if (!pair) pair = std::make_unique<Pair>();
    const bool sends = operation.call.collective == Collective::send;
    return (sends ? pair->sends : pair->recvs)[static_cast<size_t>(operation.call.channel)];
  }

  std::vector<Operation*> active_;
  std::array<OperationQueue, kContexts> contexts_{};  // collectives
  std::vector<std::unique_ptr<Pair>> pairs_;          // by peer; null before the first message
};

}  // namespace ropewalk

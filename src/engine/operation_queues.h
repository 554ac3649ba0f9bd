// Which operations may run. Collective k runs in context k mod kContexts, and starts when
// collective k - kContexts has ended here; until then it waits in its context's queue, so that a
// turn of the engine looks only at what may run, however much has been started. A peer may be
// ahead: what it sends waits in the slots of its stream. send and recv have a context of their own:
// per pair, direction and channel one of them is under way at a time.
//
// Owned by the engine and used under its lock.
#pragma once

#include <array>
#include <vector>

#include "engine/operation.h"

namespace ropewalk {

/// Operations that run one after the other, in order of start: only the first of them may run.
class OperationQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  Operation* first() const { return first_; }
  void push(Operation& operation) {
    operation.next = nullptr;
    (empty() ? first_ : last_->next) = &operation;
    last_ = &operation;
  }
  void pop() {
    assert(!empty());
    first_ = first_->next;
  }

 private:
  Operation *first_ = nullptr, *last_ = nullptr;
};

class OperationQueues {
 public:
  explicit OperationQueues(int size) : pairs_(static_cast<size_t>(size)) { active_.reserve(64); }

  /// The first of each queue, in order of their start.
  const std::vector<Operation*>& active() const { return active_; }
  /// Of a send or recv: how many of its channel were started before.
  uint32_t count_message(const Operation& operation);
  void push(Operation& operation);
  /// Takes active()[index], which has finished, out of its queue: the next one becomes active, as
  /// the last.
  void pop_active(size_t index);
  /// Whether a recv of `channel` from `peer` has been started and not ended.
  bool has_recv(int peer, int channel) const;
  /// A collective that has not ended; null where there is none.
  const Operation* find(uint32_t sequence) const;

 private:
  struct Channel {
    uint32_t sends_started = 0, recvs_started = 0;
    OperationQueue sends, recvs;
  };
  OperationQueue& queue_for(const Operation& operation);
  Channel& channel_of(const Operation& operation) {
    return pairs_[static_cast<size_t>(operation.call.root)]
                 [static_cast<size_t>(operation.call.channel)];
  }

  std::vector<Operation*> active_;
  std::array<OperationQueue, kContexts> contexts_{};   // collectives
  std::vector<std::array<Channel, kChannels>> pairs_;  // by peer
};

}  // namespace ropewalk

#include "engine/operation_queues.h"

namespace ropewalk {

uint32_t OperationQueues::count_message(const Operation& op) {
  assert(op.is_point_to_point());
  Channel& channel = channel_of(op);
  return op.call.collective == Collective::send ? channel.sends_started++ : channel.recvs_started++;
}

OperationQueue& OperationQueues::queue_for(const Operation& op) {
  if (!op.is_point_to_point()) return contexts_[op.signature.sequence % kContexts];
  Channel& channel = channel_of(op);
  return op.call.collective == Collective::send ? channel.sends : channel.recvs;
}

void OperationQueues::push(Operation& op) {
  op.queue = &queue_for(op);
  if (op.queue->empty()) active_.push_back(&op);
  op.queue->push(op);
}

void OperationQueues::pop_active(size_t index) {
  OperationQueue& queue = *active_[index]->queue;
  assert(queue.first() == active_[index]);
  active_.erase(active_.begin() + static_cast<ptrdiff_t>(index));
  queue.pop();
  if (!queue.empty()) active_.push_back(queue.first());
}

bool OperationQueues::has_recv(int peer, int channel) const {
  return !pairs_[static_cast<size_t>(peer)][static_cast<size_t>(channel)].recvs.empty();
}

const Operation* OperationQueues::find(uint32_t sequence) const {
  const Operation* op = contexts_[sequence % kContexts].first();
  while (op != nullptr && op->signature.sequence != sequence) op = op->next;
  return op;
}

}  // namespace ropewalk

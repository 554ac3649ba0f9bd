// Short messages: one step after the other, in list order. Nothing is granted, sliced or waited for
// but the next message, so that a step costs little more than the bytes it moves.
#include "engine/engine.h"

namespace ropewalk {
namespace {

/// Link::front, where the message is likely on its way. Looking once more takes a nanosecond or
/// two; another turn of the engine, with its polls, fifty times that.
const EagerHeader* await_front(Link& link, int stream) {
  constexpr int kLooks = 16;
  const EagerHeader* header = link.front(stream);
  if (link.sees_inbox())
    for (int look = 1; header == nullptr && look < kLooks && !link.lost(); ++look)
      header = link.front(stream);
  return header;
}

}  // namespace

bool Engine::run_sequential(Operation& op) {
  const std::vector<ProgramStep>& steps = op.program.steps;
  const uint32_t begin = op.next_step;
  for (; op.next_step < steps.size(); ++op.next_step) {
    const uint32_t i = op.next_step;
    const ProgramStep& step = steps[i];
    if (step.peer < 0) {
      run_local(op.program, step, 0);
      continue;
    }
    StreamState& stream = op.streams[op.steps[i].stream];
    if (step.action == Action::send) {
      const EagerHeader header{op.signature, step.bytes, MessageKind::eager};
      if (!stream.link->can_send(stream.id) ||
          !stream.link->send(stream.id, header, step.source, step.bytes))
        break;
    } else {
      // Where several operations wait, each look for one would delay the others.
      const EagerHeader* header = active_.size() == 1 ? await_front(*stream.link, stream.id)
                                                      : stream.link->front(stream.id);
      if (header == nullptr ||
          !check_header(op, *stream.link, *header, MessageKind::eager, step.bytes))
        break;
      apply(op, i, 0, payload_of(*header, step.bytes));
      stream.link->pop(stream.id);
    }
  }
  if (op.next_step == steps.size()) op.unfinished = 0;
  return op.next_step != begin;
}

}  // namespace ropewalk

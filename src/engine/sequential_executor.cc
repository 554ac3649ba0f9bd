#include <cassert>

#include "engine/executors.h"
#include "engine/failure_detector.h"

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

SequentialExecutor::SequentialExecutor(const EngineParts& engine, const Operation& operation,
                                       Program program)
    : Executor(engine, operation), program_(std::move(program)) {
  assert(can_run_sequential(program_, operation.algorithm));
  for (const ProgramStep& step : program_.steps) {
    assert(step.peer < 0 ? step.slices == 1 : step.eager);
    link_of_.push_back(step.peer < 0 ? nullptr : &require_link(step.peer));
  }
}

bool SequentialExecutor::progress() {
  assert(operation_.begun);
  if (!connect()) return false;
  const size_t begin = next_;
  for (; next_ < program_.steps.size(); ++next_) {
    const ProgramStep& step = program_.steps[next_];
    if (step.peer < 0) {
      run_local(program_, step, 0);
      continue;
    }
    Link* link = link_of_[next_];
    const int stream = stream_of(context_, step.lane);
    if (step.action == Action::send) {
      const EagerHeader header{operation_.signature, step.bytes, MessageKind::eager};
      if (!link->can_send(stream) || !link->send(stream, header, step.source, step.bytes)) break;
    } else {
      // Where several operations wait, each look for one would delay the others.
      const EagerHeader* header =
          engine_.queues.active().size() == 1 ? await_front(*link, stream) : link->front(stream);
      if (header == nullptr || !engine_.failures.check_header(operation_, *link, *header,
                                                              MessageKind::eager, step.bytes))
        break;
      apply(program_, step, 0, payload_of(*header, step.bytes));
      link->pop(stream);
    }
  }
  return next_ != begin;
}

void SequentialExecutor::find_blockers(std::vector<Blocker>& blockers) const {
  assert(operation_.begun);
  if (connected_ && !is_finished()) {
    const ProgramStep& step = program_.steps[next_];
    blockers.push_back({link_of_[next_], step.action == Action::send, step.block});
  } else if (!connected_) {
    for (Link* link : links_)
      if (!link->ready()) blockers.push_back({link});
  }
}

}  // namespace ropewalk

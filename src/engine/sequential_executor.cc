#include "engine/sequential_executor.h"

#include <cassert>

#include "engine/failure_detector.h"
#include "engine/link_table.h"
#include "engine/operation_queues.h"

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
    : engine_(engine),
      operation_(operation),
      program_(std::move(program)),
      link_of_(program_.steps.size(), nullptr) {
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    assert(program_.steps[i].bytes <= kEagerBytesMax);
    if (program_.steps[i].peer >= 0) link_of_[i] = &engine_.links.to(program_.steps[i].peer);
  }
  for (const Stream& stream : program_.streams) links_.add(engine_.links.to(stream.peer));
}

void SequentialExecutor::begin(int context) {
  assert(next_ == 0 || is_finished());
  context_ = context;
  next_ = 0;
}

bool SequentialExecutor::progress() {
  assert(operation_.begun);
  if (!links_.connect()) return false;
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

std::optional<Blocker> SequentialExecutor::next_blocker(size_t& position) const {
  if (!links_.ready()) {
    while (position < links_.links().size()) {
      Link* link = links_.links()[position++];
      if (!link->ready()) return Blocker{link, false, 0, 0, 1};
    }
    return {};
  }
  if (position++ > 0 || is_finished()) return {};
  const ProgramStep& step = program_.steps[next_];
  return Blocker{link_of_[next_], step.action == Action::send, step.block, 0, 1};
}

}  // namespace ropewalk

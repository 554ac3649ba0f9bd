#include "engine/pipelined_executor.h"

#include <algorithm>
#include <cassert>

#include "engine/failure_detector.h"
#include "engine/link_table.h"
#include "engine/memory_binder.h"
#include "engine/message_protocol.h"
#include "engine/operation.h"

namespace ropewalk {

PipelinedExecutor::PipelinedExecutor(const EngineParts& engine, const Operation& operation,
                                     Program program)
    : engine_(engine),
      operation_(operation),
      program_(std::move(program)),
      steps_(program_.steps.size()),
      streams_(program_.streams.size()) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].executor = this;
    steps_[i].slices = program_.steps[i].slices;
    steps_[i].eager = is_eager(program_.steps[i]);
  }
  for (size_t s = 0; s < streams_.size(); ++s) {
    streams_[s].program = &program_.streams[s];
    streams_[s].link = &engine_.links.to(program_.streams[s].peer);
    links_.add(*streams_[s].link);
  }
}

void PipelinedExecutor::bind(MemoryBinder& binder) {
  for (StreamState& stream : streams_) {
    bool needs_window = false;
    for (uint32_t i : stream.program->steps) needs_window |= bind_step(stream, i, binder);
    if (needs_window) binder.add_window(*stream.link, stream.window);
  }
}

/// Decides how the data of step `i` travels; true where a window is needed.
bool PipelinedExecutor::bind_step(StreamState& stream, uint32_t i, MemoryBinder& binder) {
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  if (state.eager) return false;
  const Link& link = *stream.link;
  const bool sending = stream.program->sending;
  state.exposed = is_exposed(step, link.mapped());
  if (sending && state.exposed)
    state.remote = binder.source(link, step.source, step.bytes);
  else if (sending && link.registered_sources())
    state.source_memory = &binder.find_or_register(link, step.source, step.bytes);
  if (step.action == Action::receive_copy)
    state.remote = binder.target(link, step.target, step.bytes);
  return protocol_of(step, link.mapped(), state.remote.known) ==
         (sending ? MessageProtocol::read_from_copy : MessageProtocol::staged);
}

void PipelinedExecutor::begin(int context) {
  assert(unfinished_ == 0);
  unfinished_ = static_cast<uint32_t>(steps_.size());
  for (StreamState& stream : streams_) {
    stream.id = stream_of(context, stream.program->lane);
    stream.head = stream.tail = stream.grant_head = 0;
    stream.window_issued = stream.window_consumed = stream.window_taken = 0;
    stream.consumed_seen = stream.link->to_be_consumed(stream.id);
  }
  for (StepState& step : steps_) {
    step.issued = step.done = step.consumed = 0;
    step.announced = step.granted = step.windowed = false;
  }
}

bool PipelinedExecutor::progress() {
  assert(operation_.begun);
  links_.connect();
  bool moved = false, again = true;
  while (again && unfinished_ > 0) {
    again = false;
    // Receiving first: what it grants should not stand behind what is sent.
    for (const bool sending : {false, true})
      for (StreamState& stream : streams_) {
        if (stream.program->sending != sending || !stream.link->ready()) continue;
        again |= sending ? advance_send(stream) : advance_receive(stream);
      }
    if (!program_.locals.empty()) again |= advance_locals();
    if (engine_.failures.has_failed()) return false;
    moved |= again;
  }
  return moved;
}

bool PipelinedExecutor::advance_locals() {
  bool moved = false;
  for (uint32_t i : program_.locals) {
    StepState& state = steps_[i];
    const ProgramStep& step = program_.steps[i];
    while (state.done < state.slices && slice_ready(i, state.done, step.deps_end)) {
      run_local(program_, step, state.done);
      finish_slice(state);
      moved = true;
    }
  }
  return moved;
}

void PipelinedExecutor::put_done(uint64_t cookie) {
  auto& step = *reinterpret_cast<StepState*>(cookie);
  step.executor->finish_slice(step);
}

void PipelinedExecutor::finish_slice(StepState& step) {
  assert(step.done < step.slices && unfinished_ > 0);
  if (++step.done == step.slices) --unfinished_;
}

/// Whether the steps that slice `slice` depends on, up to `deps_end`, are done as far. Slices of a
/// step end in order, so a counter tells.
bool PipelinedExecutor::slice_ready(uint32_t step, uint32_t slice, uint32_t deps_end) const {
  const uint32_t slices = steps_[step].slices;
  for (uint32_t d = program_.steps[step].deps_begin; d < deps_end; ++d) {
    const StepState& before = steps_[program_.deps[d]];
    if (before.slices == slices ? before.done <= slice : before.done < before.slices) return false;
  }
  return true;
}

std::optional<Blocker> PipelinedExecutor::next_blocker(size_t& position) const {
  while (position < streams_.size())
    if (const auto blocker = blocker_of(streams_[position++])) return blocker;
  return {};
}

/// What `stream` waits for; nothing where it waits for this rank's other steps.
std::optional<Blocker> PipelinedExecutor::blocker_of(const StreamState& stream) const {
  const std::vector<uint32_t>& steps = stream.program->steps;
  const bool sending = stream.program->sending;
  const auto blocked_at = [&](uint32_t i) {
    return Blocker{stream.link, sending, program_.steps[i].block, steps_[i].done, steps_[i].slices};
  };
  if (stream.head == steps.size()) {
    const auto open = std::find_if(steps.begin(), steps.end(),
                                   [&](uint32_t i) { return steps_[i].done != steps_[i].slices; });
    if (open == steps.end() || !sending) return {};
    return blocked_at(*open);
  }
  const uint32_t i = steps[stream.head];
  const StepState& state = steps_[i];
  if (sending) {
    const uint32_t slice = std::min(state.issued, state.slices - 1);
    if (!slice_ready(i, slice, program_.steps[i].deps_end)) return {};
    return blocked_at(i);
  }
  // What has arrived already waits for other steps here.
  const bool arrived = state.announced ? stream.link->slices_arrived(stream.id) > 0
                                       : stream.link->front(stream.id) != nullptr;
  if (arrived && !stream.link->lost()) return {};
  return blocked_at(i);
}

}  // namespace ropewalk

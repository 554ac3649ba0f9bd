// The receiving half of the pipelined executor.
#include <cassert>
#include <cstring>

#include "engine/failure_detector.h"
#include "engine/link_table.h"
#include "engine/operation.h"
#include "engine/pipelined_executor.h"

namespace ropewalk {

bool PipelinedExecutor::advance_receive(StreamState& stream) {
  const std::vector<uint32_t>& steps = stream.program->steps;
  bool moved = issue_grants(stream);
  while (stream.head < steps.size()) {
    const uint32_t i = steps[stream.head];
    StepState& state = steps_[i];
    if (!state.announced) {
      if (!accept(stream, i)) break;
      moved = true;
    }
    if (!state.eager) {
      while (state.done < state.slices && take_slice(stream, i)) moved = true;
      if (state.done < state.slices) break;
      if (state.granted) stream.link->grant_done(stream.id);
    }
    ++stream.head;
  }
  return moved;
}

bool PipelinedExecutor::issue_grants(StreamState& stream) {
  const std::vector<uint32_t>& steps = stream.program->steps;
  bool moved = false;
  for (; stream.grant_head < steps.size(); ++stream.grant_head) {
    const uint32_t i = steps[stream.grant_head];
    const ProgramStep& step = program_.steps[i];
    StepState& state = steps_[i];
    if (state.eager || state.exposed) continue;
    if (!stream.link->can_grant(stream.id)) break;
    Grant grant{operation_.signature, GrantKind::direct, 0, state.remote.key, state.remote.offset};
    if (state.remote.known) {
      // The peer will write into the block itself: all earlier users of it must have finished.
      if (!slice_ready(i, state.slices - 1, step.grant_deps_end)) break;
    } else {
      grant.kind = GrantKind::window;
      grant.window = kWindowSlots;
      grant.key = stream.window.at.key;
      grant.offset = stream.window.at.offset;
    }
    if (!stream.link->send_grant(stream.id, grant)) break;
    state.granted = true;
    state.windowed = grant.kind == GrantKind::window;
    moved = true;
  }
  return moved;
}

bool PipelinedExecutor::accept(StreamState& stream, uint32_t i) {
  const EagerHeader* header = stream.link->front(stream.id);
  if (header == nullptr) return false;
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  const MessageKind kind = state.eager     ? MessageKind::eager
                           : state.exposed ? MessageKind::exposed
                                           : MessageKind::announced;
  if (!engine_.failures.check_header(operation_, *stream.link, *header, kind, step.bytes))
    return false;
  if (state.eager) {
    if (!slice_ready(i, 0, step.deps_end)) return false;
    apply(program_, step, 0, payload_of(*header, step.bytes));
    finish_slice(state);
  } else if (state.exposed) {
    ExposedBuffer exposed;
    std::memcpy(&exposed, payload_of(*header, sizeof(exposed)), sizeof(exposed));
    const size_t reach = exposed.window > 0 ? exposed.window * program_.slice_bytes : step.bytes;
    state.incoming = stream.link->map(exposed.key, exposed.offset, reach);
    state.incoming_window = exposed.window;
    if (state.incoming == nullptr) return false;  // check_stalled will say why
  } else {
    state.incoming = stream.window.base;
    state.incoming_window = kWindowSlots;
  }
  state.announced = true;
  stream.link->pop(stream.id);
  return true;
}

bool PipelinedExecutor::take_slice(StreamState& stream, uint32_t i) {
  if (stream.link->slices_arrived(stream.id) == 0) return false;
  StepState& state = steps_[i];
  const bool direct = !state.exposed && !state.windowed;
  if (!direct) {
    if (!slice_ready(i, state.done, program_.steps[i].deps_end)) return false;
    const uint32_t place =
        state.incoming_window > 0 ? stream.window_taken++ % state.incoming_window : state.done;
    apply(program_, program_.steps[i], state.done, state.incoming + slice_begin(program_, place));
    stream.link->consume(stream.id);
  }
  stream.link->take_slice(stream.id);
  finish_slice(state);
  return true;
}

}  // namespace ropewalk

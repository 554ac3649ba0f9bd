// The receiving half of the engine's loop.
#include <array>
#include <cstring>

#include "engine/engine.h"
#include "reduce/reduce.h"

namespace ropewalk {

bool Engine::advance_receive(Operation& op, size_t f) {
  StreamState& stream = op.streams[f];
  const std::vector<uint32_t>& steps = op.program.streams[f].steps;
  bool moved = issue_grants(op, f);
  while (stream.head < steps.size()) {
    const uint32_t i = steps[stream.head];
    StepState& state = op.steps[i];
    if (!state.announced) {
      if (!accept(op, f, i)) break;
      moved = true;
    }
    if (!state.eager) {
      while (state.done < state.slices && take_slice(op, f, i)) moved = true;
      if (state.done < state.slices) break;
      if (state.granted) stream.link->grant_done(stream.id);
    }
    ++stream.head;
  }
  return moved;
}

bool Engine::issue_grants(Operation& op, size_t f) {
  StreamState& stream = op.streams[f];
  const std::vector<uint32_t>& steps = op.program.streams[f].steps;
  bool moved = false;
  for (; stream.grant_head < steps.size(); ++stream.grant_head) {
    const uint32_t i = steps[stream.grant_head];
    const ProgramStep& step = op.program.steps[i];
    StepState& state = op.steps[i];
    if (state.eager || state.exposed) continue;
    if (!stream.link->can_grant(stream.id)) break;
    Grant grant{op.signature, GrantKind::direct, 0, state.remote.key, state.remote.offset};
    if (state.remote.known) {
      // The peer will write into the block itself: all earlier users of it must have finished.
      if (!slice_ready(op, i, state.slices - 1, step.grant_deps_end)) break;
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

bool Engine::accept(Operation& op, size_t f, uint32_t i) {
  StreamState& stream = op.streams[f];
  const EagerHeader* header = stream.link->front(stream.id);
  if (header == nullptr) return false;
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  const MessageKind kind = state.eager     ? MessageKind::eager
                           : state.exposed ? MessageKind::exposed
                                           : MessageKind::announced;
  if (!check_header(op, *stream.link, *header, kind, step.bytes)) return false;
  if (state.eager) {
    if (!slice_ready(op, i, 0, step.deps_end)) return false;
    apply(op, i, 0, payload_of(*header, step.bytes));
    finish_slice(state);
  } else if (state.exposed) {
    ExposedBuffer exposed;
    std::memcpy(&exposed, payload_of(*header, sizeof(exposed)), sizeof(exposed));
    const size_t reach = exposed.window > 0 ? exposed.window * op.program.slice_bytes : step.bytes;
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

bool Engine::take_slice(Operation& op, size_t f, uint32_t i) {
  StreamState& stream = op.streams[f];
  if (stream.link->slices_arrived(stream.id) == 0) return false;
  StepState& state = op.steps[i];
  const bool direct = !state.exposed && !state.windowed;
  if (!direct) {
    if (!slice_ready(op, i, state.done, op.program.steps[i].deps_end)) return false;
    const uint32_t place =
        state.incoming_window > 0 ? stream.window_taken++ % state.incoming_window : state.done;
    apply(op, i, state.done, state.incoming + slice_begin(op.program, place));
    stream.link->consume(stream.id);
  }
  stream.link->take_slice(stream.id);
  finish_slice(state);
  return true;
}

void Engine::apply(Operation& op, uint32_t i, uint32_t slice, const std::byte* data) {
  const ProgramStep& step = op.program.steps[i];
  const size_t bytes = slice_length(op.program, step, slice);
  if (bytes == 0) return;
  std::byte* target = step.target + slice_begin(op.program, slice);
  if (step.action == Action::receive_copy) {
    std::memcpy(target, data, bytes);
    return;
  }
  const std::array<const std::byte*, 2> sources = {step.source + slice_begin(op.program, slice),
                                                   data};
  reduce(std::span(&target, 1), sources, bytes / size_of(op.program.type), op.program.type,
         op.program.op);
}

}  // namespace ropewalk

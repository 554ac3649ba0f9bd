// The sending half of the engine's loop.
#include <cstring>

#include "engine/engine.h"

namespace ropewalk {

bool Engine::advance_send(Operation& op, size_t f) {
  FifoState& fifo = op.fifos[f];
  const std::vector<uint32_t>& steps = op.program.fifos[f].steps;
  bool moved = collect_consumed(op, f);
  while (fifo.head < steps.size()) {
    const uint32_t i = steps[fifo.head];
    StepState& state = op.steps[i];
    if (!state.announced) {
      // An eager message carries its data; others are announced before the data is ready.
      if (state.eager && !slice_ready(op, i, 0, op.program.steps[i].deps_end)) break;
      if (!announce(op, f, i)) break;
      moved = true;
    }
    if (!state.eager) {
      while (state.issued < state.slices && send_slice(op, f, i)) moved = true;
      if (state.issued < state.slices) break;
      if (!state.exposed) fifo.link->finish_grant(fifo.stream);
    }
    ++fifo.head;
  }
  return moved;
}

bool Engine::announce(Operation& op, size_t f, uint32_t i) {
  FifoState& fifo = op.fifos[f];
  if (!fifo.link->can_send(fifo.stream)) return false;
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  EagerHeader header{op.signature, step.bytes, MessageKind::eager};
  if (state.eager) {
    if (!fifo.link->send(fifo.stream, header, step.source, step.bytes)) return false;
    state.issued = 1;
    finish_slice(state);
  } else {
    if (state.exposed) {
      const Reachable& at = state.reachable.known ? state.reachable : fifo.window.at;
      const Exposure exposure{at.key, at.offset, state.reachable.known ? 0 : kWindowSlots, 0};
      header.kind = MessageKind::exposed;
      if (!fifo.link->send(fifo.stream, header, reinterpret_cast<const std::byte*>(&exposure),
                           sizeof(exposure)))
        return false;
    } else {
      header.kind = MessageKind::announced;
      if (!fifo.link->send(fifo.stream, header, nullptr, 0)) return false;
    }
  }
  state.announced = true;
  return true;
}

const Grant* Engine::grant_for(const Operation& op, const FifoState& fifo) {
  const Grant* grant = fifo.link->grant(fifo.stream);
  if (grant == nullptr || grant->signature == op.signature) return grant;
  // A grant of the next operation on this context may be here already; anything else is a mismatch,
  // which check_stalled tells where it is one of earlier calls.
  if (grant->signature.sequence - op.signature.sequence - 1 >= 1u << 31 &&
      !is_same_call(grant->signature, op.signature))
    fail_mismatch(op.signature, grant->signature, fifo.link->peer());
  return nullptr;
}

bool Engine::send_slice(Operation& op, size_t f, uint32_t i) {
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  if (!slice_ready(op, i, state.issued, step.deps_end)) return false;
  if (state.exposed) return expose_slice(op, f, i);

  FifoState& fifo = op.fifos[f];
  const Grant* grant = grant_for(op, fifo);
  if (grant == nullptr) return false;
  uint64_t offset = slice_begin(op.program, state.issued);
  if (grant->kind == GrantKind::window) {
    if (fifo.window_issued - fifo.window_consumed >= grant->window) return false;
    offset = slice_begin(op.program, fifo.window_issued % grant->window);
    state.windowed = true;
  }
  const Posted posted =
      fifo.link->put_slice(fifo.stream, step.source + slice_begin(op.program, state.issued),
                           state.source_memory, slice_length(op.program, step, state.issued),
                           *grant, offset, reinterpret_cast<uint64_t>(&state));
  if (posted == Posted::full || posted == Posted::lost) return false;
  ++state.issued;
  if (state.windowed) {
    ++fifo.window_issued;
    fifo.link->expect_consumed(fifo.stream);
  }
  if (posted == Posted::done) finish_slice(state);
  return true;
}

bool Engine::expose_slice(Operation& op, size_t f, uint32_t i) {
  FifoState& fifo = op.fifos[f];
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  const bool copies = !state.reachable.known;
  if (copies && fifo.window_issued - fifo.window_consumed >= kWindowSlots) return false;
  if (copies)
    std::memcpy(fifo.window.base + slice_begin(op.program, fifo.window_issued % kWindowSlots),
                step.source + slice_begin(op.program, state.issued),
                slice_length(op.program, step, state.issued));
  if (!fifo.link->notify_slice(fifo.stream)) return false;
  if (copies) ++fifo.window_issued;
  state.windowed = copies;
  ++state.issued;
  fifo.link->expect_consumed(fifo.stream);
  return true;
}

bool Engine::collect_consumed(Operation& op, size_t f) {
  FifoState& fifo = op.fifos[f];
  const std::vector<uint32_t>& steps = op.program.fifos[f].steps;
  bool moved = false;
  while (fifo.tail < steps.size()) {
    StepState& state = op.steps[steps[fifo.tail]];
    if (state.exposed || state.windowed) {
      if (state.consumed == state.issued) break;
      if (static_cast<int32_t>(fifo.link->consumed(fifo.stream) - fifo.consumed_seen) <= 0) break;
      ++fifo.consumed_seen;
      ++state.consumed;
      if (state.windowed) ++fifo.window_consumed;
      if (state.exposed) finish_slice(state);
      moved = true;
      if (state.consumed < state.slices) continue;
    } else if (state.issued < state.slices) {
      break;
    }
    ++fifo.tail;
  }
  return moved;
}

}  // namespace ropewalk

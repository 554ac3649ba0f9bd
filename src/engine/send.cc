// The sending half of the engine's loop.
#include <cstring>

#include "engine/engine.h"

namespace ropewalk {

bool Engine::advance_send(Operation& op, size_t f) {
  StreamState& stream = op.streams[f];
  const std::vector<uint32_t>& steps = op.program.streams[f].steps;
  bool moved = collect_consumed(op, f);
  while (stream.head < steps.size()) {
    const uint32_t i = steps[stream.head];
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
      if (!state.exposed) stream.link->finish_grant(stream.id);
    }
    ++stream.head;
  }
  return moved;
}

bool Engine::announce(Operation& op, size_t f, uint32_t i) {
  StreamState& stream = op.streams[f];
  if (!stream.link->can_send(stream.id)) return false;
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  EagerHeader header{op.signature, step.bytes, MessageKind::eager};
  if (state.eager) {
    if (!stream.link->send(stream.id, header, step.source, step.bytes)) return false;
    state.issued = 1;
    finish_slice(state);
  } else {
    if (state.exposed) {
      const RemoteAddress& at = state.remote.known ? state.remote : stream.window.at;
      const ExposedBuffer exposed{at.key, at.offset, state.remote.known ? 0 : kWindowSlots, 0};
      header.kind = MessageKind::exposed;
      if (!stream.link->send(stream.id, header, reinterpret_cast<const std::byte*>(&exposed),
                             sizeof(exposed)))
        return false;
    } else {
      header.kind = MessageKind::announced;
      if (!stream.link->send(stream.id, header, nullptr, 0)) return false;
    }
  }
  state.announced = true;
  return true;
}

const Grant* Engine::grant_for(const Operation& op, const StreamState& stream) {
  const Grant* grant = stream.link->grant(stream.id);
  if (grant == nullptr || grant->signature == op.signature) return grant;
  // A grant of the next operation on this context may be here already; anything else is a mismatch,
  // which check_stalled tells where it is one of earlier calls.
  if (grant->signature.sequence - op.signature.sequence - 1 >= 1u << 31 &&
      !is_same_call(grant->signature, op.signature))
    fail_mismatch(op.signature, grant->signature, stream.link->peer());
  return nullptr;
}

bool Engine::send_slice(Operation& op, size_t f, uint32_t i) {
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  if (!slice_ready(op, i, state.issued, step.deps_end)) return false;
  if (state.exposed) return expose_slice(op, f, i);

  StreamState& stream = op.streams[f];
  const Grant* grant = grant_for(op, stream);
  if (grant == nullptr) return false;
  uint64_t offset = slice_begin(op.program, state.issued);
  if (grant->kind == GrantKind::window) {
    if (stream.window_issued - stream.window_consumed >= grant->window) return false;
    offset = slice_begin(op.program, stream.window_issued % grant->window);
    state.windowed = true;
  }
  const Posted posted =
      stream.link->put_slice(stream.id, step.source + slice_begin(op.program, state.issued),
                             state.source_memory, slice_length(op.program, step, state.issued),
                             *grant, offset, reinterpret_cast<uint64_t>(&state));
  if (posted == Posted::full || posted == Posted::lost) return false;
  ++state.issued;
  if (state.windowed) {
    ++stream.window_issued;
    stream.link->expect_consumed(stream.id);
  }
  if (posted == Posted::done) finish_slice(state);
  return true;
}

bool Engine::expose_slice(Operation& op, size_t f, uint32_t i) {
  StreamState& stream = op.streams[f];
  const ProgramStep& step = op.program.steps[i];
  StepState& state = op.steps[i];
  const bool copies = !state.remote.known;
  if (copies && stream.window_issued - stream.window_consumed >= kWindowSlots) return false;
  if (copies)
    std::memcpy(stream.window.base + slice_begin(op.program, stream.window_issued % kWindowSlots),
                step.source + slice_begin(op.program, state.issued),
                slice_length(op.program, step, state.issued));
  if (!stream.link->notify_slice(stream.id)) return false;
  if (copies) ++stream.window_issued;
  state.windowed = copies;
  ++state.issued;
  stream.link->expect_consumed(stream.id);
  return true;
}

bool Engine::collect_consumed(Operation& op, size_t f) {
  StreamState& stream = op.streams[f];
  const std::vector<uint32_t>& steps = op.program.streams[f].steps;
  bool moved = false;
  while (stream.tail < steps.size()) {
    StepState& state = op.steps[steps[stream.tail]];
    if (state.exposed || state.windowed) {
      if (state.consumed == state.issued) break;
      if (static_cast<int32_t>(stream.link->consumed(stream.id) - stream.consumed_seen) <= 0) break;
      ++stream.consumed_seen;
      ++state.consumed;
      if (state.windowed) ++stream.window_consumed;
      if (state.exposed) finish_slice(state);
      moved = true;
      if (state.consumed < state.slices) continue;
    } else if (state.issued < state.slices) {
      break;
    }
    ++stream.tail;
  }
  return moved;
}

}  // namespace ropewalk

// The sending half of the pipelined executor.
#include <cassert>
#include <cstring>

#include "engine/failure_detector.h"
#include "engine/link_table.h"
#include "engine/operation.h"
#include "engine/pipelined_executor.h"

namespace ropewalk {

bool PipelinedExecutor::advance_send(StreamState& stream) {
  const std::vector<uint32_t>& steps = stream.program->steps;
  bool moved = collect_consumed(stream);
  while (stream.head < steps.size()) {
    const uint32_t i = steps[stream.head];
    StepState& state = steps_[i];
    if (!state.announced) {
      // An eager message carries its data; others are announced before the data is ready.
      if (state.eager && !slice_ready(i, 0, program_.steps[i].deps_end)) break;
      if (!announce(stream, i)) break;
      moved = true;
    }
    if (!state.eager) {
      while (state.issued < state.slices && send_slice(stream, i)) moved = true;
      if (state.issued < state.slices) break;
      if (!state.exposed) stream.link->finish_grant(stream.id);
    }
    ++stream.head;
  }
  return moved;
}

bool PipelinedExecutor::announce(StreamState& stream, uint32_t i) {
  if (!stream.link->can_send(stream.id)) return false;
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  EagerHeader header{operation_.signature, step.bytes, MessageKind::eager};
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

const Grant* PipelinedExecutor::grant_for(const StreamState& stream) {
  const Grant* grant = stream.link->grant(stream.id);
  if (grant == nullptr || grant->signature == operation_.signature) return grant;
  // A grant of the next operation on this context may be here already; anything else is a mismatch,
  // which check_stalled tells where it is one of earlier calls.
  if (grant->signature.sequence - operation_.signature.sequence - 1 >= 1u << 31 &&
      !is_same_call(grant->signature, operation_.signature))
    engine_.failures.fail_mismatch(operation_.signature, grant->signature, stream.link->peer());
  return nullptr;
}

bool PipelinedExecutor::send_slice(StreamState& stream, uint32_t i) {
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  if (!slice_ready(i, state.issued, step.deps_end)) return false;
  if (state.exposed) return expose_slice(stream, i);

  const Grant* grant = grant_for(stream);
  if (grant == nullptr) return false;
  uint64_t offset = slice_begin(program_, state.issued);
  if (grant->kind == GrantKind::window) {
    if (stream.window_issued - stream.window_consumed >= grant->window) return false;
    offset = slice_begin(program_, stream.window_issued % grant->window);
    state.windowed = true;
  }
  const Posted posted =
      stream.link->put_slice(stream.id, step.source + slice_begin(program_, state.issued),
                             state.source_memory, slice_length(program_, step, state.issued),
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

bool PipelinedExecutor::expose_slice(StreamState& stream, uint32_t i) {
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  const bool copies = !state.remote.known;
  if (copies && stream.window_issued - stream.window_consumed >= kWindowSlots) return false;
  if (copies)
    std::memcpy(stream.window.base + slice_begin(program_, stream.window_issued % kWindowSlots),
                step.source + slice_begin(program_, state.issued),
                slice_length(program_, step, state.issued));
  if (!stream.link->notify_slice(stream.id)) return false;
  if (copies) ++stream.window_issued;
  state.windowed = copies;
  ++state.issued;
  stream.link->expect_consumed(stream.id);
  return true;
}

bool PipelinedExecutor::collect_consumed(StreamState& stream) {
  const std::vector<uint32_t>& steps = stream.program->steps;
  bool moved = false;
  while (stream.tail < steps.size()) {
    StepState& state = steps_[steps[stream.tail]];
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

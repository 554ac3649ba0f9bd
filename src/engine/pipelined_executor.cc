#include <algorithm>
#include <cassert>
#include <cstring>

#include "engine/executors.h"
#include "engine/failure_detector.h"
#include "engine/memory_binder.h"

namespace ropewalk {
namespace {

MessageKind kind_of(const StepState& step) {
  if (step.eager) return MessageKind::eager;
  return step.exposed ? MessageKind::exposed : MessageKind::announced;
}

}  // namespace

PipelinedExecutor::PipelinedExecutor(const EngineParts& engine, const Operation& operation,
                                     Program program)
    : Executor(engine, operation), program_(std::move(program)) {
  for (const ProgramStep& step : program_.steps)
    steps_.push_back({.executor = this, .slices = step.slices, .eager = step.eager});
  for (const Stream& stream : program_.streams)
    streams_.push_back({.program = &stream, .link = &require_link(stream.peer)});
}

void PipelinedExecutor::bind(MemoryBinder& binder) {
  for (StreamState& stream : streams_) {
    bool needs_window = false;
    for (uint32_t i : stream.program->steps) needs_window |= bind_step(stream, i, binder);
    if (needs_window)
      binder.add_window(*stream.link, stream.window, kWindowSlots * program_.slice_bytes);
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
  return protocol_of(step, link.mapped(), state.remote.known != 0) ==
         (sending ? MessageProtocol::read_from_copy : MessageProtocol::staged);
}

void PipelinedExecutor::begin(int context) {
  assert(unfinished_ == 0);
  unfinished_ = static_cast<uint32_t>(steps_.size());
  oldest_ = 0;
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

/// Issues grants, sends or receives, as far as it goes.
template <bool sending>
bool PipelinedExecutor::advance(StreamState& stream) {
  const std::vector<uint32_t>& steps = stream.program->steps;
  bool moved = sending ? collect_consumed(stream) : issue_grants(stream);
  for (; stream.head < steps.size(); ++stream.head) {
    const uint32_t i = steps[stream.head];
    StepState& state = steps_[i];
    if (!state.announced) {
      if (!(sending ? announce(stream, i) : accept(stream, i))) break;
      moved = true;
    }
    if (state.eager) continue;
    const uint32_t& passed = sending ? state.issued : state.done;
    while (passed < state.slices && (sending ? send_slice(stream, i) : take_slice(stream, i)))
      moved = true;
    if (passed < state.slices) break;
    if (sending && !state.exposed) stream.link->finish_grant(stream.id);
    if (!sending && state.granted) stream.link->grant_done(stream.id);
  }
  return moved;
}

bool PipelinedExecutor::progress() {
  assert(operation_.begun);
  connect();
  bool moved = false, again = true;
  while (again && unfinished_ > 0) {
    again = false;
    // Receiving first: what it grants should not stand behind what is sent.
    for (const bool sending : {false, true})
      for (StreamState& stream : streams_) {
        if (stream.program->sending != sending || !stream.link->ready()) continue;
        again |= sending ? advance<true>(stream) : advance<false>(stream);
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

void PipelinedExecutor::find_blockers(std::vector<Blocker>& blockers) const {
  assert(operation_.begun);
  for (const StreamState& stream : streams_)
    if (const auto i = blocked_step(stream))
      blockers.push_back({stream.link, stream.program->sending, program_.steps[*i].block,
                          steps_[*i].done, steps_[*i].slices});
}

std::optional<uint32_t> PipelinedExecutor::blocked_step(const StreamState& stream) const {
  const std::vector<uint32_t>& steps = stream.program->steps;
  if (stream.head == steps.size()) {
    if (!stream.program->sending) return {};
    const auto open =
        std::ranges::find_if(steps, [&](uint32_t i) { return steps_[i].done != steps_[i].slices; });
    return open == steps.end() ? std::nullopt : std::optional(*open);
  }
  const uint32_t i = steps[stream.head];
  const StepState& state = steps_[i];
  if (stream.program->sending) {
    const uint32_t slice = std::min(state.issued, state.slices - 1);
    const bool waits_here = is_early(i) || !slice_ready(i, slice, program_.steps[i].deps_end);
    return waits_here ? std::nullopt : std::optional(i);
  }
  if (!state.announced && !state.eager && !state.exposed && !state.granted) {
    const bool may_grant = state.remote.known == 0 ||
                           slice_ready(i, state.slices - 1, program_.steps[i].grant_deps_end);
    return may_grant ? std::optional(i) : std::nullopt;  // the peer does not take the grant
  }
  // What has arrived already waits for other steps here.
  const bool arrived = state.announced ? stream.link->slices_arrived(stream.id) > 0
                                       : stream.link->front(stream.id) != nullptr;
  return arrived && !stream.link->lost() ? std::nullopt : std::optional(i);
}

bool PipelinedExecutor::announce(StreamState& stream, uint32_t i) {
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  // An eager message carries its data; others are announced before the data is ready.
  if (state.eager && (is_early(i) || !slice_ready(i, 0, step.deps_end))) return false;
  if (!stream.link->can_send(stream.id)) return false;
  const EagerHeader header{operation_.signature, step.bytes, kind_of(state)};
  const std::byte* payload = state.eager ? step.source : nullptr;
  size_t payload_bytes = state.eager ? step.bytes : 0;
  RemoteBuffer exposed;
  if (state.exposed) {
    exposed = state.remote.known != 0 ? state.remote : stream.window.at;
    exposed.known = 0;
    payload = reinterpret_cast<const std::byte*>(&exposed);
    payload_bytes = sizeof(exposed);
  }
  if (!stream.link->send(stream.id, header, payload, payload_bytes)) return false;
  if (state.eager) {
    state.issued = 1;
    finish_slice(state);
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
  if (is_early(i) || !slice_ready(i, state.issued, step.deps_end)) return false;
  if (state.exposed) return expose_slice(stream, i);

  const Grant* grant = grant_for(stream);
  if (grant == nullptr) return false;
  uint64_t offset = slice_begin(program_, state.issued);
  const RemoteBuffer& place = grant->place;
  if (place.window > 0) {
    if (stream.window_issued - stream.window_consumed >= place.window) return false;
    offset = slice_begin(program_, stream.window_issued % place.window);
    state.windowed = true;
  }
  const Posted posted =
      stream.link->put_slice(stream.id, step.source + slice_begin(program_, state.issued),
                             state.source_memory, slice_length(program_, step, state.issued), place,
                             offset, reinterpret_cast<uint64_t>(&state));
  if (posted == Posted::full || posted == Posted::lost) return false;
  ++state.issued;
  if (state.windowed) {
    ++stream.window_issued;
    stream.link->expect_consumed(stream.id);
  }
  if (posted == Posted::done)
    finish_slice(state);
  else
    ++puts_under_way_;
  return true;
}

bool PipelinedExecutor::expose_slice(StreamState& stream, uint32_t i) {
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  const bool copies = state.remote.known == 0;
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

bool PipelinedExecutor::issue_grants(StreamState& stream) {
  const std::vector<uint32_t>& steps = stream.program->steps;
  bool moved = false;
  for (; stream.grant_head < steps.size(); ++stream.grant_head) {
    const uint32_t i = steps[stream.grant_head];
    const ProgramStep& step = program_.steps[i];
    StepState& state = steps_[i];
    if (state.eager || state.exposed) continue;
    if (!stream.link->can_grant(stream.id)) break;
    const bool direct = state.remote.known != 0;
    // The peer will write into the block itself: all earlier users of it must have finished.
    if (direct && !slice_ready(i, state.slices - 1, step.grant_deps_end)) break;
    const Grant grant{operation_.signature, direct ? state.remote : stream.window.at};
    if (!stream.link->send_grant(stream.id, grant)) break;
    state.granted = true;
    state.windowed = !direct;
    moved = true;
  }
  return moved;
}

bool PipelinedExecutor::accept(StreamState& stream, uint32_t i) {
  const EagerHeader* header = stream.link->front(stream.id);
  if (header == nullptr) return false;
  const ProgramStep& step = program_.steps[i];
  StepState& state = steps_[i];
  if (!engine_.failures.check_header(operation_, *stream.link, *header, kind_of(state), step.bytes))
    return false;
  if (state.eager) {
    if (!slice_ready(i, 0, step.deps_end)) return false;
    apply(program_, step, 0, payload_of(*header, step.bytes));
    finish_slice(state);
  } else if (state.exposed) {
    RemoteBuffer exposed;
    std::memcpy(&exposed, payload_of(*header, sizeof(exposed)), sizeof(exposed));
    state.incoming = stream.link->map(exposed, program_.slice_bytes, step.bytes);
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

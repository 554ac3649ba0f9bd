// Steps that move nothing between ranks, and passes that fuse receiving, reducing and sending.
#include <array>
#include <cstring>

#include "engine/engine.h"
#include "reduce/reduce.h"

namespace ropewalk {
namespace {

void run_local(const Program& program, const ProgramStep& step, uint32_t slice) {
  const size_t begin = slice_begin(program, slice);
  const size_t bytes = slice_length(program, step, slice);
  if (bytes == 0) return;
  const size_t count = bytes / size_of(program.type);
  std::byte* target = step.target + begin;
  switch (step.action) {
    case Action::local_copy:
      std::memcpy(target, step.source + begin, bytes);
      break;
    case Action::local_scale:
      scale(target, step.source + begin, count, program.type, program.op.scale);
      break;
    case Action::local_divide:
      divide(target, count, program.type, program.ranks);
      break;
    case Action::local_reduce: {
      const std::array<const std::byte*, 2> sources = {step.source + begin, step.source2 + begin};
      reduce(std::span(&target, 1), sources, count, program.type, program.op);
      break;
    }
    default:
      break;
  }
}

}  // namespace

bool Engine::advance_locals(Operation& op) {
  bool moved = false;
  for (uint32_t i : op.program.locals) {
    StepState& state = op.steps[i];
    const ProgramStep& step = op.program.steps[i];
    while (state.done < state.slices && slice_ready(op, i, state.done, step.deps_end)) {
      run_local(op.program, step, state.done);
      finish_slice(state);
      moved = true;
    }
  }
  return moved;
}

bool Engine::advance_fused(Operation& op) {
  bool moved = false;
  for (size_t g = 0; g < op.program.fused.size(); ++g) {
    const FusedGroup& group = op.program.fused[g];
    uint32_t& slice = op.fused_slices[g];
    while (slice < op.steps[group.receives[0]].slices && fused_ready(op, group, slice)) {
      fused_pass(op, group, slice);
      ++slice;
      moved = true;
    }
  }
  return moved;
}

bool Engine::fused_ready(Operation& op, const FusedGroup& group, uint32_t slice) {
  const uint32_t first = group.receives[0];
  if (!slice_ready(op, first, slice, op.program.steps[first].deps_end)) return false;
  for (uint32_t i : group.receives) {
    const FifoState& fifo = op.fifos[op.steps[i].fifo];
    if (!op.steps[i].announced || fifo.link->slices_arrived(fifo.stream) == 0) return false;
  }
  return true;
}

/// Where the pass can write `slice` straight to the peer of send `i`; null where it cannot (its
/// grant is not here yet, an earlier message is still being sent): then the send goes its ordinary
/// way.
std::byte* Engine::pass_target(Operation& op, uint32_t i, uint32_t slice) {
  const StepState& state = op.steps[i];
  const FifoState& fifo = op.fifos[state.fifo];
  const std::vector<uint32_t>& steps = op.program.fifos[state.fifo].steps;
  if (fifo.head >= steps.size() || steps[fifo.head] != i) return nullptr;
  if (!state.announced || state.issued != slice) return nullptr;
  if (state.done + state.untold != state.issued) return nullptr;  // slices finish in order
  const Grant* grant = grant_for(op, fifo);
  if (grant == nullptr) return nullptr;
  uint64_t offset = slice_begin(op.program, slice);
  if (grant->kind == GrantKind::window) {
    if (fifo.window_issued - fifo.window_consumed >= grant->window) return nullptr;
    offset = slice_begin(op.program, fifo.window_issued % grant->window);
  }
  return fifo.link->map(grant->key, grant->offset + offset,
                        slice_length(op.program, op.program.steps[i], slice));
}

void Engine::fused_pass(Operation& op, const FusedGroup& group, uint32_t slice) {
  const Program& program = op.program;
  const ProgramStep& first = program.steps[group.receives[0]];
  const size_t begin = slice_begin(program, slice);
  const size_t bytes = slice_length(program, first, slice);
  std::array<const std::byte*, kReduceFanMax> sources;
  std::array<std::byte*, kReduceFanMax> targets;
  size_t source_count = 0, target_count = 0;
  sources[source_count++] = first.source + begin;
  targets[target_count++] = program.steps[group.receives.back()].target + begin;
  for (uint32_t i : group.receives) {
    StepState& state = op.steps[i];
    FifoState& fifo = op.fifos[state.fifo];
    const uint32_t place =
        state.incoming_window > 0 ? fifo.window_taken++ % state.incoming_window : slice;
    sources[source_count++] = state.incoming + slice_begin(program, place);
  }
  for (uint32_t i : group.sends) {
    std::byte* target = pass_target(op, i, slice);
    if (target == nullptr) continue;
    targets[target_count++] = target;
    StepState& state = op.steps[i];
    FifoState& fifo = op.fifos[state.fifo];
    state.windowed = fifo.link->grant(fifo.stream)->kind == GrantKind::window;
    if (state.windowed) {
      ++fifo.window_issued;
      fifo.link->expect_consumed(fifo.stream);
    }
    ++state.issued;
    ++state.untold;
  }
  reduce(std::span(targets.data(), target_count), std::span(sources.data(), source_count),
         bytes / size_of(program.type), program.type, program.op);
  for (uint32_t i : group.receives) {
    StepState& state = op.steps[i];
    FifoState& fifo = op.fifos[state.fifo];
    fifo.link->take_slice(fifo.stream);
    fifo.link->consume(fifo.stream);
    finish_slice(state);
    if (state.done == state.slices) ++fifo.head;
  }
}

}  // namespace ropewalk

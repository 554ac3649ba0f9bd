// Steps that move nothing between ranks.
#include <array>
#include <cstring>

#include "engine/engine.h"
#include "reduce/reduce.h"

namespace ropewalk {

void Engine::run_local(const Program& program, const ProgramStep& step, uint32_t slice) {
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

}  // namespace ropewalk

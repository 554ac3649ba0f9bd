// What one slice of a step does to this rank's memory.
#include <array>
#include <cassert>
#include <cstring>

#include "engine/executor.h"
#include "reduce/reduce.h"

namespace ropewalk {

void apply(const Program& program, const ProgramStep& step, uint32_t slice, const std::byte* data) {
  assert(step.action == Action::receive_copy || step.action == Action::receive_reduce);
  const size_t bytes = slice_length(program, step, slice);
  if (bytes == 0) return;
  std::byte* target = step.target + slice_begin(program, slice);
  if (step.action == Action::receive_copy) {
    std::memcpy(target, data, bytes);
    return;
  }
  const std::array<const std::byte*, 2> sources = {step.source + slice_begin(program, slice), data};
  reduce(std::span(&target, 1), sources, bytes / size_of(program.type), program.type, program.op);
}

void run_local(const Program& program, const ProgramStep& step, uint32_t slice) {
  assert(step.peer < 0);
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
      assert(false);
  }
}

}  // namespace ropewalk

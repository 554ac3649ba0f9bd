// A schedule bound to memory: what the engine runs. Compiled once per plan; the data path only
// reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layout.h"
#include "schedule/schedule.h"

namespace ropewalk {

enum class Action : uint8_t {
  send,            // to `peer`, who stores or reduces it
  receive_copy,    // target = incoming
  receive_reduce,  // target = source (+) incoming
  local_copy,      // target = source
  local_reduce,    // target = source (+) source2
  local_scale,     // target = source * op.scale
  local_divide,    // target = target / ranks
};

struct ProgramStep {
  Action action = Action::send;
  bool for_reduce = false;  // send: the peer reduces
  uint8_t lane = 0;
  int32_t peer = -1;
  int32_t block = 0;  // for messages to people
  const std::byte* source = nullptr;
  const std::byte* source2 = nullptr;
  std::byte* target = nullptr;
  size_t bytes = 0;
  uint32_t slices = 1;
  uint32_t deps_begin = 0, deps_end = 0;  // into Program::deps: steps that come before, by slice
  uint32_t grant_deps_end = 0;  // receive_copy: of these, only [deps_begin, grant_deps_end) must be
                                // done before the peer may write into the target
};

/// The steps of one (peer, lane, direction), in list order.
struct Stream {
  int32_t peer = -1;
  uint8_t lane = 0;
  bool sending = false;
  std::vector<uint32_t> steps;
};

struct Program {
  std::vector<ProgramStep> steps;
  std::vector<uint32_t> deps;
  std::vector<Stream> streams;
  std::vector<uint32_t> locals;  // steps without a peer, in list order
  size_t slice_bytes = 0;
  DataType type = DataType::uint8;
  ReduceOp op;
  int ranks = 1;
};

/// Bytes of private memory that compile() needs for `schedule` with `blocks`.
size_t scratch_bytes(const Schedule& schedule, const std::vector<BlockMemory>& blocks,
                     const Call& call);

/// `scratch` has scratch_bytes(...) bytes and lives as long as the program.
Program compile(const Schedule& schedule, const std::vector<BlockMemory>& blocks, const Call& call,
                size_t slice_bytes, std::byte* scratch);

/// Whether steps may run one after the other, in list order: every message fits into an eager slot,
/// and a stream has the slots that schedules of `algorithm` are verified to need for that.
bool can_run_sequential(const Program& program, Algorithm algorithm);

}  // namespace ropewalk

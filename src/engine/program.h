// A schedule bound to memory: what the engine runs. Compiled once per plan; the data path only
// reads it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/layout.h"
#include "engine/wire.h"

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
  int32_t block = 0;   // for messages to people
  bool eager = false;  // with a peer: travels whole, in a slot
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
  uint32_t steps_ahead_max = 0;  // as in Schedule
};

/// `allocate` gives the private memory, of so many bytes, that the schedule needs beside the
/// caller's blocks; it lives as long as the program. Asked once, and not for 0 bytes.
/// `eager_limit`: messages to or from `peer` of at most so many bytes travel whole. Requires slices
/// of a multiple of 64 bytes, at least kMappedEagerBytesMax.
Program compile(const Schedule& schedule, const std::vector<BlockMemory>& blocks, const Call& call,
                size_t slice_bytes, const std::function<size_t(int peer)>& eager_limit,
                const std::function<std::byte*(size_t bytes)>& allocate);

/// Whether steps may run one after the other, in list order: every message is short, and as many of
/// a stream may be unread as schedules of `algorithm` are verified to need for that.
bool can_run_sequential(const Program& program, Algorithm algorithm);

/// Where slice `slice` begins, and how many of the `bytes` of a message it has.
inline size_t slice_begin(const Program& program, uint32_t slice) {
  return static_cast<size_t>(slice) * program.slice_bytes;
}
inline size_t slice_length(size_t bytes, size_t slice_bytes, uint32_t slice) {
  return std::min(slice_bytes, bytes - slice * slice_bytes);
}
inline size_t slice_length(const Program& program, const ProgramStep& step, uint32_t slice) {
  return slice_length(step.bytes, program.slice_bytes, slice);
}

constexpr uint32_t slices_of(size_t bytes, size_t slice_bytes) {
  return static_cast<uint32_t>((bytes + slice_bytes - 1) / slice_bytes);
}

/// Stores, or adds, `data`, a slice that has arrived for a receiving step.
void apply(const Program& program, const ProgramStep& step, uint32_t slice, const std::byte* data);
/// Runs a slice of a step that moves nothing between ranks.
void run_local(const Program& program, const ProgramStep& step, uint32_t slice);

/// How a message of a program travels: what executors do, and what `ropewalk explain` tells.
enum class MessageProtocol {
  eager,             // whole, behind its header, into a slot of the receiver's inbox
  read_by_owner,     // not moved: the block's owner reads it where it lies
  read_in_place,     // not moved: added where it lies in the sender's memory
  read_from_copy,    // copied by the sender into staging memory that the peer maps; added there
  written_by_owner,  // the owner of the block writes it straight into its final place
  through_window,    // the owner reads or writes a window, from or to which the contributor copies
  stored,            // put straight into its final place
  staged,            // put into the receiver's staging memory; added or copied from there
};

/// Whether what is to be added stays with its sender. `mapped`: the two ranks map each other's
/// memory.
constexpr bool is_exposed(const ProgramStep& step, bool mapped) {
  return mapped && !step.eager && (step.for_reduce || step.action == Action::receive_reduce);
}

/// `known`: whether peers can reach the memory of an exposed source, or of a target. A sender
/// cannot know that of its peer's target.
constexpr MessageProtocol protocol_of(const ProgramStep& step, bool mapped, bool known) {
  if (step.eager) return MessageProtocol::eager;
  if (is_exposed(step, mapped))
    return step.action == Action::send && !known ? MessageProtocol::read_from_copy
                                                 : MessageProtocol::read_in_place;
  const bool adds = step.for_reduce || step.action == Action::receive_reduce;
  return known && !adds ? MessageProtocol::stored : MessageProtocol::staged;
}

}  // namespace ropewalk

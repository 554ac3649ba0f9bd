#include "engine/program.h"

#include <algorithm>
#include <cassert>
#include <map>

#include "engine/wire.h"
#include "reduce/reduce.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

constexpr size_t kAlignBytes = 64;
size_t aligned(size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

size_t data_block(const Schedule& schedule, int block) {
  return static_cast<size_t>(block % schedule.blocks);
}

/// Which blocks (data, then scratch) are written although the caller gave no memory for them.
std::vector<bool> needs_scratch(const Schedule& schedule, const std::vector<BlockMemory>& blocks,
                                const Call& call) {
  std::vector<bool> needs(static_cast<size_t>(schedule.blocks + schedule.scratch), false);
  const auto is_missing = [&](int block) {
    return block >= schedule.blocks || blocks[static_cast<size_t>(block)].out == nullptr;
  };
  for (const Step& step : schedule.steps)
    if (!is_send(step.op) && is_missing(step.block)) needs[static_cast<size_t>(step.block)] = true;
  for (int b = 0; b < schedule.blocks; ++b) {
    const bool scaled = call.op.kind == ReduceKind::scaled_sum && is_reduction(call.collective);
    if ((scaled || overwrites_input(call)) && blocks[static_cast<size_t>(b)].in != nullptr &&
        is_missing(b))
      needs[static_cast<size_t>(b)] = true;
  }
  return needs;
}

/// Turns steps over numbered blocks into steps over memory, with dependencies.
class Compiler {
 public:
  Compiler(const Schedule& schedule, const std::vector<BlockMemory>& blocks, const Call& call,
           size_t slice_bytes, std::byte* scratch)
      : schedule_(schedule), blocks_(blocks), call_(call) {
    program_.slice_bytes = slice_bytes;
    program_.type = call.type;
    program_.op = call.op;
    program_.ranks = schedule.ranks;
    place(scratch);
  }

  Program run() {
    add_prologue();
    for (const Step& step : schedule_.steps) add(step);
    add_epilogue();
    return std::move(program_);
  }

 private:
  struct BlockState {
    const std::byte* current = nullptr;  // where the block's value is now
    std::byte* home = nullptr;           // where writes of it go
    size_t bytes = 0;
    int last_writer = -1;
    std::vector<uint32_t> readers;  // since the last write
  };

  void place(std::byte* scratch) {
    const std::vector<bool> needs = needs_scratch(schedule_, blocks_, call_);
    states_.resize(needs.size());
    for (size_t b = 0; b < states_.size(); ++b) {
      const BlockMemory& memory = blocks_[data_block(schedule_, static_cast<int>(b))];
      const bool is_data = b < blocks_.size();
      states_[b].bytes = memory.elements * size_of(call_.type);
      states_[b].current = is_data ? memory.in : nullptr;
      states_[b].home = is_data ? memory.out : nullptr;
      if (needs[b]) {
        states_[b].home = scratch;
        scratch += aligned(states_[b].bytes);
      }
    }
  }

  void add_prologue() {
    const bool scaled = call_.op.kind == ReduceKind::scaled_sum && is_reduction(call_.collective);
    if (!scaled && !overwrites_input(call_)) return;
    for (size_t b = 0; b < blocks_.size(); ++b)
      if (blocks_[b].in != nullptr)
        add_local(scaled ? Action::local_scale : Action::local_copy, static_cast<int>(b));
    if (overwrites_input(call_)) saved_ = program_.locals;
  }

  void add_epilogue() {
    const bool averages = call_.op.kind == ReduceKind::avg && is_reduction(call_.collective);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      BlockState& state = states_[b];
      if (blocks_[b].out == nullptr) continue;
      // An output that no step wrote is this rank's own input.
      if (state.current != nullptr && state.current != state.home)
        add_local(Action::local_copy, static_cast<int>(b));
      if (averages && schedule_.ranks > 1) add_local(Action::local_divide, static_cast<int>(b));
    }
    if (call_.collective == Collective::all_to_all) add_own_part();
  }

  /// all_to_all: what this rank sends to itself.
  void add_own_part() {
    const BlockState& from = states_[static_cast<size_t>(schedule_.rank)];
    const BlockState& to = states_[static_cast<size_t>(schedule_.ranks + schedule_.rank)];
    ProgramStep step = make(Action::local_copy, schedule_.ranks + schedule_.rank);
    step.source = from.current;
    step.target = to.home;
    if (step.source == step.target) return;
    depend_on_saved();
    push(step);
  }

  ProgramStep make(Action action, int block) {
    ProgramStep step;
    step.action = action;
    step.block = block;
    step.bytes = states_[static_cast<size_t>(block)].bytes;
    const size_t slice = program_.slice_bytes;
    // Short messages travel whole, in one eager slot.
    step.slices =
        step.bytes <= kEagerBytesMax ? 1 : static_cast<uint32_t>((step.bytes + slice - 1) / slice);
    step.deps_begin = static_cast<uint32_t>(program_.deps.size());
    return step;
  }

  uint32_t push(ProgramStep step) {
    step.deps_end = static_cast<uint32_t>(program_.deps.size());
    if (step.action != Action::receive_copy) step.grant_deps_end = step.deps_end;
    const auto index = static_cast<uint32_t>(program_.steps.size());
    program_.steps.push_back(step);
    if (step.peer < 0)
      program_.locals.push_back(index);
    else
      stream(step.peer, step.lane, step.action == Action::send).steps.push_back(index);
    return index;
  }

  Stream& stream(int peer, uint8_t lane, bool sending) {
    const auto key = std::tuple(peer, lane, sending);
    const auto [it, is_new] = stream_index_.try_emplace(key, program_.streams.size());
    if (is_new) program_.streams.push_back({peer, lane, sending, {}});
    return program_.streams[it->second];
  }

  void depend_on(int step) {
    if (step >= 0) program_.deps.push_back(static_cast<uint32_t>(step));
  }
  void depend_on_saved() {
    for (uint32_t step : saved_) program_.deps.push_back(step);
  }

  /// A write of `state` at its home waits for the last write, and for readers of that memory.
  /// Returns where the dependencies end that the peer does not itself observe: it cannot send the
  /// block back to us before it has read what we sent it of the block (its list order).
  uint32_t depend_for_write(const BlockState& state, int from_peer) {
    depend_on(state.last_writer);
    depend_on_saved();
    const auto reads_home = [&](uint32_t reader) {
      return program_.steps[reader].source == state.home;
    };
    for (uint32_t reader : state.readers)
      if (reads_home(reader) && program_.steps[reader].peer != from_peer)
        program_.deps.push_back(reader);
    const auto end = static_cast<uint32_t>(program_.deps.size());
    for (uint32_t reader : state.readers)
      if (reads_home(reader) && program_.steps[reader].peer == from_peer)
        program_.deps.push_back(reader);
    return end;
  }

  void wrote(BlockState& state, uint32_t index) {
    state.current = state.home;
    state.last_writer = static_cast<int>(index);
    state.readers.clear();
  }

  void add_local(Action action, int block) {
    BlockState& state = states_[static_cast<size_t>(block)];
    ProgramStep step = make(action, block);
    step.source = state.current;
    step.target = state.home;
    depend_for_write(state, -2);
    wrote(state, push(step));
  }

  void add(const Step& step) {
    if (is_send(step.op)) return add_send(step);
    if (step.op == StepOp::reduce) return add_reduce(step);
    BlockState& state = states_[static_cast<size_t>(step.block)];
    const bool copies = step.op == StepOp::recv_copy;
    ProgramStep out = make(copies ? Action::receive_copy : Action::receive_reduce, step.block);
    out.peer = step.peer;
    out.lane = step.lane;
    out.source = copies ? nullptr : state.current;
    out.target = state.home;
    out.grant_deps_end = depend_for_write(state, step.peer);
    wrote(state, push(out));
  }

  void add_send(const Step& step) {
    BlockState& state = states_[static_cast<size_t>(step.block)];
    ProgramStep out = make(Action::send, step.block);
    out.peer = step.peer;
    out.lane = step.lane;
    out.for_reduce = step.op == StepOp::send_reduce;
    out.source = state.current;
    depend_on(state.last_writer);
    state.readers.push_back(push(out));
  }

  void add_reduce(const Step& step) {
    BlockState& state = states_[static_cast<size_t>(step.block)];
    BlockState& from = states_[static_cast<size_t>(step.from)];
    ProgramStep out = make(Action::local_reduce, step.block);
    out.source = state.current;
    out.source2 = from.current;
    out.target = state.home;
    depend_for_write(state, -2);
    depend_on(from.last_writer);
    const uint32_t index = push(out);
    wrote(state, index);
    // The scratch block's next write waits for this read of it: make it the last "writer".
    from.last_writer = static_cast<int>(index);
    from.readers.clear();
  }

  const Schedule& schedule_;
  const std::vector<BlockMemory>& blocks_;
  const Call& call_;
  Program program_;
  std::vector<BlockState> states_;
  std::vector<uint32_t> saved_;  // all_to_all in place: the copies that everything waits for
  std::map<std::tuple<int, uint8_t, bool>, size_t> stream_index_;
};

}  // namespace

size_t scratch_bytes(const Schedule& schedule, const std::vector<BlockMemory>& blocks,
                     const Call& call) {
  const std::vector<bool> needs = needs_scratch(schedule, blocks, call);
  size_t bytes = 0;
  for (size_t b = 0; b < needs.size(); ++b)
    if (needs[b])
      bytes +=
          aligned(blocks[data_block(schedule, static_cast<int>(b))].elements * size_of(call.type));
  return bytes;
}

Program compile(const Schedule& schedule, const std::vector<BlockMemory>& blocks, const Call& call,
                size_t slice_bytes, std::byte* scratch) {
  assert(slice_bytes >= kEagerBytesMax && slice_bytes % 64 == 0);
  return Compiler(schedule, blocks, call, slice_bytes, scratch).run();
}

bool can_run_sequential(const Program& program, Algorithm algorithm) {
  // What the peer has popped but not yet told may hold the rest of the ring.
  constexpr size_t kFreeSlots = kSlots - kCreditBatch + 1;
  const auto is_short = [](const ProgramStep& step) { return step.bytes <= kEagerBytesMax; };
  const uint32_t credits = algorithm == Algorithm::automatic
                               ? 1  // send and recv: one message
                               : descriptor_of(algorithm).list_order_credits;
  const auto fits = [](const Stream& stream) { return stream.steps.size() <= kFreeSlots; };
  return std::all_of(program.steps.begin(), program.steps.end(), is_short) &&
         (credits <= kFreeSlots ||
          std::all_of(program.streams.begin(), program.streams.end(), fits));
}

}  // namespace ropewalk

#include "engine/program.h"

#include <array>
#include <cassert>
#include <cstring>
#include <map>
#include <tuple>

#include "reduce/reduce.h"
#include "schedule/algorithm.h"

namespace ropewalk {
namespace {

constexpr size_t kAlignBytes = 64;
size_t aligned(size_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

/// By StepOp.
constexpr std::array kActions = {Action::send, Action::send, Action::receive_copy,
                                 Action::receive_reduce, Action::local_reduce};

/// Turns steps over numbered blocks into steps over memory, with dependencies.
class Compiler {
 public:
  Compiler(const Schedule& schedule, const std::vector<BlockMemory>& blocks, const Call& call,
           size_t slice_bytes, const std::function<size_t(int)>& eager_limit)
      : schedule_(schedule), blocks_(blocks), call_(call), eager_limit_(eager_limit) {
    program_.slice_bytes = slice_bytes;
    program_.type = call.type;
    program_.op = call.op;
    program_.ranks = schedule.ranks;
    program_.steps_ahead_max = static_cast<uint32_t>(schedule.steps_ahead_max);
  }

  Program run(const std::function<std::byte*(size_t)>& allocate) {
    place(allocate);
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
    bool is_written = false;
    int last_writer = -1;
    std::vector<uint32_t> readers;  // since the last write
  };

  BlockState& state(int block) { return states_[static_cast<size_t>(block)]; }
  /// Whether the input is copied, scaled or as it is, before anything is sent.
  bool copies_input() const { return scales(call_) || overwrites_input(call_); }

  /// Blocks (data, then scratch) that are written although the caller gave no memory for them lie
  /// in private memory.
  void place(const std::function<std::byte*(size_t)>& allocate) {
    states_.resize(static_cast<size_t>(schedule_.blocks + schedule_.scratch));
    for (size_t b = 0; b < states_.size(); ++b) {
      const BlockMemory& memory = blocks_[b % blocks_.size()];
      states_[b].bytes = memory.elements * size_of(call_.type);
      if (b >= blocks_.size()) continue;
      states_[b].current = memory.in;
      states_[b].home = memory.out;
      states_[b].is_written = copies_input() && memory.in != nullptr;
    }
    for (const Step& step : schedule_.steps)
      if (!is_send(step.op)) state(step.block).is_written = true;
    const auto needs_memory = [](const BlockState& s) { return s.is_written && s.home == nullptr; };
    size_t bytes = 0;
    for (const BlockState& s : states_)
      if (needs_memory(s)) bytes += aligned(s.bytes);
    std::byte* scratch = bytes == 0 ? nullptr : allocate(bytes);
    for (BlockState& s : states_)
      if (needs_memory(s)) s.home = std::exchange(scratch, scratch + aligned(s.bytes));
  }

  void add_prologue() {
    if (!copies_input()) return;
    for (size_t b = 0; b < blocks_.size(); ++b)
      if (blocks_[b].in != nullptr)
        add_local(scales(call_) ? Action::local_scale : Action::local_copy, static_cast<int>(b));
    if (overwrites_input(call_)) saved_ = program_.locals;
  }

  void add_epilogue() {
    if (call_.collective == Collective::all_to_all)  // what this rank sends to itself
      state(schedule_.ranks + schedule_.rank).current = state(schedule_.rank).current;
    for (int b = 0; b < schedule_.blocks; ++b) {
      if (blocks_[static_cast<size_t>(b)].out == nullptr) continue;
      // An output that no step wrote is this rank's own input.
      if (state(b).current != nullptr && state(b).current != state(b).home)
        add_local(Action::local_copy, b);
      if (averages(call_) && schedule_.ranks > 1) add_local(Action::local_divide, b);
    }
  }

  /// `peer`: -1, or at the other end.
  ProgramStep make(Action action, int block, int peer) {
    ProgramStep step;
    step.action = action;
    step.block = block;
    step.peer = peer;
    step.bytes = state(block).bytes;
    step.slices = std::max(slices_of(step.bytes, program_.slice_bytes), 1u);
    step.eager = peer >= 0 && step.slices == 1 && step.bytes <= eager_limit_(peer);
    step.deps_begin = static_cast<uint32_t>(program_.deps.size());
    return step;
  }

  uint32_t push(ProgramStep step) {
    step.deps_end = static_cast<uint32_t>(program_.deps.size());
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

  /// A write of `state` at its home waits for the last write, and for readers of that memory.
  /// Returns where the dependencies end that the peer does not itself observe: it cannot send the
  /// block back to us before it has read what we sent it of the block (its list order).
  uint32_t depend_for_write(const BlockState& state, int from_peer) {
    depend_on(state.last_writer);
    program_.deps.insert(program_.deps.end(), saved_.begin(), saved_.end());
    const auto depend_on_readers = [&](bool at_peer) {
      for (uint32_t i : state.readers) {
        const ProgramStep& reader = program_.steps[i];
        if (reader.source == state.home && (reader.peer == from_peer) == at_peer)
          program_.deps.push_back(i);
      }
    };
    depend_on_readers(false);
    const auto end = static_cast<uint32_t>(program_.deps.size());
    depend_on_readers(true);
    return end;
  }

  void wrote(BlockState& state, uint32_t index) {
    state.current = state.home;
    state.last_writer = static_cast<int>(index);
    state.readers.clear();
  }

  void add_local(Action action, int block) {
    ProgramStep step = make(action, block, -1);
    step.source = state(block).current;
    step.target = state(block).home;
    depend_for_write(state(block), step.peer);
    wrote(state(block), push(step));
  }

  void add(const Step& step) {
    BlockState& block = state(step.block);
    ProgramStep out = make(kActions[static_cast<size_t>(step.op)], step.block, step.peer);
    out.for_reduce = step.op == StepOp::send_reduce;
    out.lane = step.lane;
    if (step.op != StepOp::recv_copy) out.source = block.current;
    if (is_send(step.op)) {
      depend_on(block.last_writer);
      block.readers.push_back(push(out));
      return;
    }
    out.target = block.home;
    out.grant_deps_end = depend_for_write(block, step.peer);
    if (step.op != StepOp::reduce) return wrote(block, push(out));
    BlockState& from = state(step.from);
    out.source2 = from.current;
    depend_on(from.last_writer);
    wrote(block, push(out));
    // The scratch block's next write waits for this read of it: make it the last "writer".
    from.last_writer = block.last_writer;
    from.readers.clear();
  }

  const Schedule& schedule_;
  const std::vector<BlockMemory>& blocks_;
  const Call& call_;
  const std::function<size_t(int)>& eager_limit_;
  Program program_;
  std::vector<BlockState> states_;
  std::vector<uint32_t> saved_;  // all_to_all in place: the copies that everything waits for
  std::map<std::tuple<int, uint8_t, bool>, size_t> stream_index_;
};

}  // namespace

Program compile(const Schedule& schedule, const std::vector<BlockMemory>& blocks, const Call& call,
                size_t slice_bytes, const std::function<size_t(int peer)>& eager_limit,
                const std::function<std::byte*(size_t bytes)>& allocate) {
  assert(slice_bytes >= kMappedEagerBytesMax && slice_bytes % 64 == 0);
  return Compiler(schedule, blocks, call, slice_bytes, eager_limit).run(allocate);
}

bool can_run_sequential(const Program& program, Algorithm algorithm) {
  // What the peer has popped but not yet told may hold the rest of the ring.
  constexpr size_t kFreeSlots = kUnreadMax - kCreditBatch + 1;
  const uint32_t credits = algorithm == Algorithm::automatic
                               ? 1  // send and recv: one message
                               : descriptor_of(algorithm).list_order_credits;
  const auto fits = [](const Stream& stream) { return stream.steps.size() <= kFreeSlots; };
  const auto is_short = [](const ProgramStep& step) { return step.bytes <= kSequentialBytesMax; };
  return std::ranges::all_of(program.steps, is_short) &&
         (credits <= kFreeSlots || std::ranges::all_of(program.streams, fits));
}

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

// The ways to run a schedule: sequential, pipelined and owner-computes.
#pragma once

#include <cassert>
#include <optional>

#include "engine/executor.h"
#include "engine/owner_program.h"

namespace ropewalk {

/// Short messages: one step after the other, in list order. Nothing is granted, sliced or waited
/// for except the next message, so that a step costs little more than the bytes it moves.
///
/// It runs the list from top to bottom and stops at a receive whose message has not arrived. It is
/// free of deadlock only where no circle of sends waits for receives further down. Of the 8
/// messages of a stream that may be unread, whose credits come back four at a time at the latest, 5
/// can always be sent again; the verifier replays every schedule in list order with as many. Only
/// two_level, which sends long runs before it receives, may need more: see can_run_sequential.
class SequentialExecutor final : public Executor {
 public:
  /// Requires can_run_sequential(program, operation.algorithm).
  SequentialExecutor(const EngineParts& engine, const Operation& operation, Program program);

  void bind(MemoryBinder&) override {}  // what fits into a slot is copied
  void begin(int context) override {
    assert(next_ == 0 || is_finished());
    context_ = context;
    next_ = 0;
  }
  bool progress() override;
  bool is_finished() const override { return next_ == program_.steps.size(); }
  void find_blockers(std::vector<Blocker>& blockers) const override;

  const Program& program() const { return program_; }

 private:
  const Program program_;
  std::vector<Link*> link_of_;  // by step; null where it is local
  int context_ = 0;
  size_t next_ = 0;  // step
};

class PipelinedExecutor;

/// Where a step of its program stands.
struct StepState {
  // Fixed.
  PipelinedExecutor* executor = nullptr;
  uint32_t slices = 1;
  bool eager = false;        // travels whole, in a slot
  bool exposed = false;      // stays where it is; the peer maps it
  RemoteBuffer remote = {};  // exposed send: the source; receive_copy: the target
  const MemoryRegistration* source_memory = nullptr;  // other sends, where the transport wants it
  // Of the run.
  uint32_t issued = 0, done = 0, consumed = 0;  // slices
  bool announced = false;
  bool granted = false;
  bool windowed = false;                // slices go through a window
  const std::byte* incoming = nullptr;  // receiving: exposed data, or its window
  uint32_t incoming_window = 0;         // slots of that window; 0: the data lies whole
};

/// Any schedule over any link: each stream (peer, lane, direction) by itself, slice by slice.
///
/// The sender pushes what is stored, and the receiver pulls what is reduced where it can: a copy
/// has one writer and a final place, a reduction has to be read by the rank that adds anyway.
///   eager      at most eager_bytes_max: the data stands behind the header
///   announced  the receiver grants a place; the sender puts slice after slice there
///   exposed    to be reduced, and the sender's memory is mapped: the header says where the data
///              lies; the sender only says "slice ready"
/// A grant is direct (the final place of the block) or a window of staging slots, where the block
/// is to be reduced or its place has no remote key. A source that is to be exposed and has no
/// remote key is copied through such a window, too.
///
/// A direct grant may go out when everything that used the block earlier has ended here, with one
/// exception: sends of this block to this same peer. The peer answers with the block only after it
/// has read what was sent to it, slice by slice. This relies on a promise of every schedule: where
/// a block comes back from the peer that it was sent to, the peer sends it from the block into
/// which it received it, after receiving it (src/schedule/exchange_test.cc checks every builder).
class PipelinedExecutor final : public Executor {
 public:
  PipelinedExecutor(const EngineParts& engine, const Operation& operation, Program program);

  void bind(MemoryBinder& binder) override;
  void begin(int context) override;
  bool progress() override;
  bool is_finished() const override { return unfinished_ == 0; }
  bool is_quiet() const override { return puts_under_way_ == 0; }
  void find_blockers(std::vector<Blocker>& blockers) const override;
  /// The put with `cookie`, one of a slice, no longer reads its source.
  static void put_done(uint64_t cookie) {
    auto& step = *reinterpret_cast<StepState*>(cookie);
    --step.executor->puts_under_way_;
    step.executor->finish_slice(step);
  }

  const Program& program() const { return program_; }
  const std::vector<StepState>& steps() const { return steps_; }

 private:
  struct StreamState {
    // Fixed.
    const Stream* program = nullptr;  // its steps
    Link* link = nullptr;
    // Receiving: staging; sending: copies of unregistered memory, to be exposed.
    Window window = {};
    // Of the run.
    int id = 0;               // stream_of(context, lane)
    uint32_t head = 0;        // first step not yet issued (sending) or finished (receiving)
    uint32_t tail = 0;        // sending: first step not yet wholly consumed
    uint32_t grant_head = 0;  // receiving: first step not yet granted
    uint32_t consumed_seen = 0;
    uint32_t window_issued = 0, window_consumed = 0;  // sending
    uint32_t window_taken = 0;                        // receiving
  };

  bool bind_step(StreamState& stream, uint32_t step, MemoryBinder& binder);
  bool slice_ready(uint32_t step, uint32_t slice, uint32_t deps_end) const;
  void finish_slice(StepState& step) {
    assert(step.done < step.slices && unfinished_ > 0);
    if (++step.done < step.slices) return;
    --unfinished_;
    while (oldest_ < steps_.size() && steps_[oldest_].done == steps_[oldest_].slices) ++oldest_;
  }
  /// Too far ahead of the oldest step that has not ended: a send does not begin.
  bool is_early(uint32_t step) const {
    return program_.steps_ahead_max > 0 && step >= oldest_ + program_.steps_ahead_max;
  }
  bool advance_locals();
  template <bool sending>
  bool advance(StreamState& stream);
  /// The step for which `stream` waits; none where it waits for this rank's other steps.
  std::optional<uint32_t> blocked_step(const StreamState& stream) const;
  // Sending:
  bool announce(StreamState& stream, uint32_t step);
  bool send_slice(StreamState& stream, uint32_t step);
  bool expose_slice(StreamState& stream, uint32_t step);
  bool collect_consumed(StreamState& stream);
  const Grant* grant_for(const StreamState& stream);
  // Receiving:
  bool issue_grants(StreamState& stream);
  bool accept(StreamState& stream, uint32_t step);
  bool take_slice(StreamState& stream, uint32_t step);

  const Program program_;
  std::vector<StepState> steps_;
  std::vector<StreamState> streams_;
  uint32_t unfinished_ = 0;      // steps
  uint32_t oldest_ = 0;          // of these
  uint32_t puts_under_way_ = 0;  // of slices
};

/// Collectives over mapped memory: each block has an owner (Schedule::owners), and owners do all
/// the work. The other ranks of a block, its contributors, each send the owner a descriptor of
/// their buffers: where their part of the block lies, and where the result goes. When the
/// descriptors are in, the owner reads its own part and its contributors' where they lie, adds, and
/// writes the result to its own memory and to its contributors', each byte once. Then it tells
/// them, by `consumed` notices. So a call costs one message each way and the work, which all ranks
/// do side by side.
///
/// A contributor whose memory has no remote key copies through a window, slice by slice: it tells
/// which slices are ready, and the owner which are done. Slices are short enough for the window to
/// stay in cache.
///
/// There is no deadlock: a descriptor waits for nothing except its link, a slice in a window only
/// for the owner to be done with an earlier one. The memory is the operation's own from its start,
/// so no dependencies are needed. The meaning of the schedule is kept because of what
/// src/schedule/owners_test.cc checks of every builder: one end of each message is the owner, which
/// receives before it sends, and there is one block per owner and contributor.
///
/// Only where all ranks map each other.
class OwnerExecutor final : public Executor {
 public:
  /// Requires that all ranks map each other.
  OwnerExecutor(const EngineParts& engine, const Operation& operation, OwnerProgram program);

  void bind(MemoryBinder& binder) override;
  void begin(int context) override;
  bool progress() override;
  bool is_finished() const override { return finished_; }
  void find_blockers(std::vector<Blocker>& blockers) const override;

  const OwnerProgram& program() const { return program_; }

 private:
  bool run_contributor(OwnerPeer& owner);
  bool send_descriptor(OwnerPeer& owner);
  bool accept_descriptor(OwnerPeer& contributor);
  bool run_owner(OwnedBlock& block);
  void reduce_slices(const OwnedBlock& block, uint32_t slices) const;

  OwnerProgram program_;
  bool finished_ = true;  // before the first run, too
};

}  // namespace ropewalk

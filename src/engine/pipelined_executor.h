// Any schedule over any link: each stream (peer, lane, direction) by itself, slice by slice.
//
// The sender pushes what is stored, and the receiver pulls what is reduced where it can: a copy has
// one writer and a final place, a reduction has to be read by the rank that adds anyway.
//   eager      at most kEagerBytesMax: the data stands behind the header
//   announced  the receiver grants a place; the sender puts slice after slice there
//   exposed    to be reduced, and the sender's memory is mapped: the header says where the data
//              lies; the sender only says "slice ready"
// A grant is direct (the final place of the block) or a window of staging slots, where the block is
// to be reduced or its place has no remote key. A source that is to be exposed and has no remote
// key is copied through such a window, too.
//
// A direct grant may go out when everything that used the block earlier has ended here, with one
// exception: sends of this block to this same peer. The peer answers with the block only after it
// has read what was sent to it, slice by slice. This relies on a promise of every schedule: where a
// block comes back from the peer that it was sent to, the peer sends it from the block into which
// it received it, after receiving it (src/schedule/exchange_test.cc checks every builder).
#pragma once

#include "engine/executor.h"
#include "engine/program.h"

namespace ropewalk {

class Operation;
class PipelinedExecutor;

struct StepState {
  // Fixed.
  PipelinedExecutor* executor = nullptr;
  uint32_t slices = 1;
  bool eager = false;    // travels whole, in a slot
  bool exposed = false;  // stays where it is; the peer maps it
  RemoteAddress remote;  // exposed send: the source; receive_copy: the target
  const MemoryRegistration* source_memory = nullptr;  // other sends, where the transport wants it
  // Of the run.
  uint32_t issued = 0, done = 0, consumed = 0;  // slices
  bool announced = false;
  bool granted = false;
  bool windowed = false;                // slices go through a window
  const std::byte* incoming = nullptr;  // receiving: exposed data, or its window
  uint32_t incoming_window = 0;         // slots of that window; 0: the data lies whole
};

class PipelinedExecutor final : public Executor {
 public:
  /// `operation` owns it.
  PipelinedExecutor(const EngineParts& engine, const Operation& operation, Program program);

  void bind(MemoryBinder& binder) override;
  void begin(int context) override;
  bool progress() override;
  bool is_finished() const override { return unfinished_ == 0; }
  std::optional<Blocker> next_blocker(size_t& position) const override;
  /// The put with `cookie`, one of a slice, no longer reads its source.
  static void put_done(uint64_t cookie);

  const Program& program() const { return program_; }
  const std::vector<StepState>& steps() const { return steps_; }

 private:
  struct StreamState {
    // Fixed.
    const Stream* program = nullptr;  // its steps
    Link* link = nullptr;
    Window window;  // receiving: staging; sending: copies of unregistered memory, to be exposed
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
  void finish_slice(StepState& step);
  bool advance_locals();
  std::optional<Blocker> blocker_of(const StreamState& stream) const;
  // pipelined_send.cc
  bool advance_send(StreamState& stream);
  bool announce(StreamState& stream, uint32_t step);
  bool send_slice(StreamState& stream, uint32_t step);
  bool expose_slice(StreamState& stream, uint32_t step);
  bool collect_consumed(StreamState& stream);
  const Grant* grant_for(const StreamState& stream);
  // pipelined_receive.cc
  bool advance_receive(StreamState& stream);
  bool issue_grants(StreamState& stream);
  bool accept(StreamState& stream, uint32_t step);
  bool take_slice(StreamState& stream, uint32_t step);

  const EngineParts engine_;
  const Operation& operation_;
  const Program program_;
  RequiredLinks links_;
  std::vector<StepState> steps_;
  std::vector<StreamState> streams_;
  uint32_t unfinished_ = 0;  // steps
};

}  // namespace ropewalk

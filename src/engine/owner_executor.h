// Collectives over mapped memory: each block has an owner (Schedule::owners), and owners do all the
// work. The other ranks of a block, its contributors, each send the owner a descriptor of their
// buffers: where their part of the block lies, and where the result goes. When the descriptors are
// in, the owner reads its own part and its contributors' where they lie, adds, and writes the
// result to its own memory and to its contributors', each byte once. Then it tells them, by
// `consumed` notices. So a call costs one message each way and the work, which all ranks do side by
// side.
//
// A contributor whose memory has no remote key copies through a window, slice by slice: it tells
// which slices are ready, and the owner which are done. Slices are short enough for the window to
// stay in cache.
//
// There is no deadlock: a descriptor waits for nothing except its link, a slice in a window only
// for the owner to be done with an earlier one. The memory is the operation's own from its start,
// so no dependencies are needed. The meaning of the schedule is kept because of what
// src/schedule/owners_test.cc checks of every builder: one end of each message is the owner, which
// receives before it sends, and there is one block per owner and contributor.
//
// Only where all ranks map each other.
#pragma once

#include "engine/executor.h"
#include "engine/owner_program.h"

namespace ropewalk {

class Operation;

class OwnerExecutor final : public Executor {
 public:
  /// `operation` owns it. Requires that all ranks map each other.
  OwnerExecutor(const EngineParts& engine, const Operation& operation, OwnerProgram program);

  void bind(MemoryBinder& binder) override;
  void begin(int context) override;
  bool progress() override;
  bool is_finished() const override { return finished_; }
  std::optional<Blocker> next_blocker(size_t& position) const override;

  const OwnerProgram& program() const { return program_; }

 private:
  bool run_contributor(OwnerPeer& owner);
  bool send_descriptor(OwnerPeer& owner);
  bool accept_descriptor(OwnerPeer& contributor);
  bool run_owner(OwnedBlock& block);
  void reduce_slices(const OwnedBlock& block, uint32_t slices) const;

  const EngineParts engine_;
  const Operation& operation_;
  OwnerProgram program_;
  RequiredLinks links_;
  bool finished_ = true;  // before the first run, too
};

}  // namespace ropewalk

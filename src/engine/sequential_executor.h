// Short messages: one step after the other, in list order. Nothing is granted, sliced or waited for
// except the next message, so that a step costs little more than the bytes it moves.
//
// It runs the list from top to bottom and stops at a receive whose message has not arrived. It is
// free of deadlock only where no circle of sends waits for receives further down. Of the 8 slots of
// a stream, whose credits come back four at a time at the latest, 5 can always be had again; the
// verifier replays every schedule in list order with as many. Only two_level, which sends long runs
// before it receives, may need more: see can_run_sequential.
#pragma once

#include "engine/executor.h"
#include "engine/program.h"

namespace ropewalk {

class Operation;

class SequentialExecutor final : public Executor {
 public:
  /// Requires can_run_sequential(program, ...). `operation` owns it.
  SequentialExecutor(const EngineParts& engine, const Operation& operation, Program program);

  void bind(MemoryBinder&) override {}  // what fits into a slot is copied
  void begin(int context) override;
  bool progress() override;
  bool is_finished() const override { return next_ == program_.steps.size(); }
  std::optional<Blocker> next_blocker(size_t& position) const override;

  const Program& program() const { return program_; }

 private:
  const EngineParts engine_;
  const Operation& operation_;
  const Program program_;
  RequiredLinks links_;
  std::vector<Link*> link_of_;  // by step; null where it is local
  int context_ = 0;
  size_t next_ = 0;  // step
};

}  // namespace ropewalk

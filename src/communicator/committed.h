// all_reduce on all ranks that are left, or on none.
//
// A two-phase commit without a coordinator. A call sums into memory of the library, enters a
// barrier, and then copies the sum to the caller. Who has passed the barrier knows that every rank
// has the sum. Where the sum or the barrier fails, those who are left agree (epoch.cc, `settle`)
// whether each of them has it, whoever dies meanwhile, as in "Consensus on Transaction Commit"
// (Gray and Lamport, 2006). A rank that has passed the barrier may be in any call by then; it takes
// part when it next agrees with the others, as it does in order to go on.
//
// Why that is the same everywhere: if a rank has passed the barrier of call k then all have the
// sum, and whoever is left says so. If none has, what is decided is for all. No rank has the sum of
// call k + 1 while another is in call k, for that has not brought its part; so the parity of the
// last sum that a rank has tells which it is.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "memory/registered_memory.h"
#include "ropewalk/communicator.h"

namespace ropewalk {

/// The committed calls of one communicator. Thread-safe: one call at a time.
class CommittedCalls {
 public:
  /// As Communicator::all_reduce_committed.
  void run(Communicator::Impl& impl, const Call& call, int64_t timeout_ns);

 private:
  void sum(Communicator::Impl& impl, const Call& call, int64_t timeout_ns);
  void reserve(Communicator::Impl& impl, size_t bytes);

  std::mutex mutex_;
  std::shared_ptr<RegisteredMemory> memory_;  // of the sum; as large as the largest
};

}  // namespace ropewalk

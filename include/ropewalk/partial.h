// all_reduce that waits for nobody longer than it is told to: a partial collective (Li, Ben-Nun, Di
// Girolamo, Alistarh and Hoefler, "Taming unbalanced training workloads in deep learning with
// partial collective operations", PPoPP 2020).
//
//   ropewalk::PartialAllReduce<float> reducer(*comm, gradients.size());
//   while (...) {
//     compute(gradients);
//     const ropewalk::PartialSum sum = reducer.all_reduce(gradients, 2ms);
//     apply(gradients, sum.total());       // of so many contributions
//   }
//   reducer.finish(gradients);             // what others have given since
//   apply(gradients, ...);
//
// Calls go in rounds. A round sums what those bring who have come in time; a thread of the library
// adds zeros for the others, also while they compute or sleep. Who comes late brings what it has to
// the round that is open then, and gets the sum of all rounds since its last call. So every
// contribution is in the sums of each rank once: after `finish` all ranks have got the same in
// total, in another order of additions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/communicator.h"

namespace ropewalk {

/// What a sum holds.
struct PartialSum {
  /// By rank: how many of its contributions. Of a call that covers one round: 1 or 0.
  std::vector<uint32_t> contributions;
  uint32_t rounds = 0;  // all since this rank's last call
  uint64_t total() const {
    return std::accumulate(contributions.begin(), contributions.end(), uint64_t{0});
  }
};

namespace internal {
/// PartialAllReduce of `type`; `data` is elements of that type.
class PartialReducer {
 public:
  PartialReducer(Communicator& comm, size_t count, DataType type);
  ~PartialReducer();

  PartialSum all_reduce(void* data, size_t count, std::chrono::nanoseconds patience);
  /// `rest` may be null.
  PartialSum finish(void* rest, size_t count);
  /// `finish` without a rest, where that has not been called; logs what that throws.
  void leave() noexcept;
  void abort(const std::string& reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace internal

/// T: any element type. Neither copied nor moved.
/// Threads: one at a time, except for `abort`; each rank has a thread of the library besides.
/// Memory: three times `count` elements. Peers may read the data of a call until it returns: in
/// place what `comm` has allocated.
/// Errors: as those of any call, on every rank; then it is broken, and the data of calls that throw
/// are as they were. Whether what they brought is in a sum that another rank has got is not known:
/// after `shrink` make the parameters equal again, and a new PartialAllReduce.
template <class T>
class PartialAllReduce {
 public:
  /// Collective. Calls have `count` elements, the same on every rank. Of `comm` it makes a
  /// communicator of its own, with the same ranks; `comm` may go first.
  PartialAllReduce(Communicator& comm, size_t count) : reducer_(comm, count, data_type_of<T>()) {}

  /// Brings `data` to the round that is open, and returns the sum of that round, and of those that
  /// this rank has missed since its last call, in `data`. The round is summed as soon as all have
  /// come that were in time for the one before, or else `patience` after this rank has come, or
  /// earlier where another rank has less: so a straggler costs the others their patience once, and
  /// nothing until it has come again. Ranks make any number of calls.
  PartialSum all_reduce(std::span<T> data, std::chrono::nanoseconds patience) {
    return reducer_.all_reduce(data.data(), data.size(), patience);
  }
  /// Collective: waits until every rank has called it, however long that takes as long as it lives,
  /// and gives the sum of the rounds since this rank's last call. Takes part in the others' rounds
  /// until then. Afterwards calls throw Error(invalid_argument). The destructor calls it and drops
  /// the rest; while an exception is being thrown it does not wait: the others' calls then throw.
  PartialSum finish(std::span<T> rest) { return reducer_.finish(rest.data(), rest.size()); }
  /// Breaks it on every rank with `reason`: calls under way and later ones throw Error(aborted).
  /// From any thread.
  void abort(const std::string& reason) { reducer_.abort(reason); }

 private:
  internal::PartialReducer reducer_;
};

}  // namespace ropewalk

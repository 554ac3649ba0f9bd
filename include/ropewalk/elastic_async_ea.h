// Asynchronous elastic averaging in a job whose members come and go. Nobody has a part in that but
// a thread of the library on each member:
//
//   ropewalk::ElasticAsyncEa<float> ea(ropewalk::Communicator::create(), 10, 0.2, parameters);
//   while (ea.steps() < kSteps) {
//     step(parameters);
//     ea.average_parameters(parameters);  // at every tenth: one round trip
//   }
//   ea.finish(parameters);  // or ea.leave(): the others go on
//
// A member that dies is left out, and the center restored, by these threads; a process that waits
// to join (Options::join_running) is taken in by them, as soon as one has heard of it. They are
// always there, so a change takes milliseconds, however long a step is. An exchange that comes
// meanwhile waits for its end; steps between exchanges wait for nothing.
//
// Threads: one thread per object, except for what says otherwise. While the object lives its
// communicator is for nothing else.
// Errors: no call throws because another member has died or left. What ends the policy on this
// rank is thrown by the call under way and by all later ones: Error(no_quorum) where too few are
// left, Error(timeout) where a change has taken longer than the time for it, Error(unavailable)
// where the center or a part of it is lost, Error(mismatch) where lists or alpha differ, and what
// this rank lacks. The others then go on as after a death. Error(invalid_argument) of this rank's
// own list ends nothing. Parameters are as they were where a call throws, except for `finish`.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

#include "ropewalk/policies.h"

namespace ropewalk {

/// Of this rank, until the members change.
struct Membership {
  int epoch = 0;  // Epoch::number
  int rank = 0, size = 1;
};

/// AsyncEa without servers: every member works and owns a part of the center, of which the others
/// have copies.
template <class T>
class ElasticAsyncEa {
 public:
  /// Collective: a founder's `parameters` become those of rank 0, a newcomer's the center. Where a
  /// member dies meanwhile the others go on. `comm`: of a whole job, not split; members wait for a
  /// newcomer from its admission until it is here, so make the two at once. `tau` and `alpha` as
  /// for AsyncEa. `timeout`: of a change of the members, all tries together; who does not answer
  /// is waited for half of it. `has_state`: a newcomer's parameters are no initial ones, but of a
  /// checkpoint. Where all who had the center have died before newcomers got it, those of the first
  /// newcomer that has state become the center; where none has, this throws Error(unavailable).
  ElasticAsyncEa(std::shared_ptr<Communicator> comm, int tau, double alpha,
                 TensorList<T> parameters,
                 std::chrono::nanoseconds timeout = std::chrono::seconds(30),
                 bool has_state = false);
  /// As `leave`; while an exception is being thrown as `abort`.
  ~ElasticAsyncEa();

  /// Call after every local step. At every tau-th: as AsyncEa::average_parameters, true. Once it
  /// returns the exchange is in the center, once, also where a change of the members has cut it
  /// off: what the center lacked of it has been added then. Of pieces that the center had already
  /// the parameters have not moved.
  bool average_parameters(TensorList<T> parameters);
  /// How many steps this rank has made; a newcomer begins with those of the member that has made
  /// most. Any thread.
  uint64_t steps() const;
  /// Any thread.
  Membership membership() const;

  /// Collective, the end: waits until all members have come here or gone, however long they take;
  /// members may change meanwhile. Then `parameters` are the center, the same bits on every rank,
  /// or this has thrown on each that is left.
  void finish(TensorList<T> parameters);
  /// This member leaves alone, and the others go on, however few they are; nobody else has to call
  /// anything. What it has brought stays in the center. Returns once they have agreed to that; at
  /// the latest after `timeout` it leaves as one that dies. After `finish` or an error it does
  /// nothing; the second call neither. Afterwards calls throw Error(invalid_argument).
  void leave();
  /// This member's calls, also one under way, end with Error(aborted); the others go on as after a
  /// death. Any thread, but not during the constructor or destructor.
  void abort(std::string_view reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk

// When to average, and what: the two policies of torch-distlearn and asynchronous elastic
// averaging, over lists of tensors.
//
// A tensor is a span; a list may hold tensors of any lengths, the same on every rank. Each policy
// moves the whole list at once. Ranks may take different numbers of steps, also none. T is float,
// double, float16 or bfloat16; halves are computed in float.
//
// Policies are neither copied nor moved.
//
// State: a policy *has state* where its caller's parameters are the job's: that of a rank that was
// there as the job began (epoch 0), and any after a `resume` or a synchronization that has ended.
// One that is made in a later epoch, as a newcomer's, has none before, and is asked for nothing:
// `resume` takes the parameters or the center of those that have. Where nobody has any more, since
// all who had it have died before newcomers got it, `resume` throws the same Error(unavailable) on
// every rank. To go on, load a checkpoint, call `declare_state` on the ranks that have, and
// `resume` again.
//
// Threads: one thread per policy object; they are not thread-safe, except for AsyncEa::abort. One
// AllReduceSgd or AllReduceEa at a time may be between synchronizations on one communicator; an
// AsyncEa is a communicator of its own, which shares the connections.
// Errors: Error(invalid_argument) when a list's total length differs from earlier calls on this
// rank, Error(mismatch) when it differs between ranks, and whatever the communicator throws. After
// a failed call its gradients or parameters are as they were; of a synchronize_* of AllReduceEa
// they have moved in the others' rounds that had ended, which are in the center.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ropewalk/communicator.h"

namespace ropewalk {

template <class T>
using TensorList = std::span<const std::span<T>>;

/// Synchronous data-parallel SGD.
template <class T>
class AllReduceSgd {
 public:
  /// `comm` must outlive the policy.
  explicit AllReduceSgd(Communicator& comm);
  ~AllReduceSgd();

  /// Sums `gradients` over the ranks that still step; counts a step of this rank. Returns how many
  /// ranks contributed (ranks that wait in `synchronize_parameters` do not).
  int sum_gradients(TensorList<T> gradients);
  /// The same, then divides by the number of contributors where that is above 1.
  int sum_and_normalize_gradients(TensorList<T> gradients);
  /// Puts the parameters of the rank with most steps (the lowest such rank) on every rank,
  /// bit for bit, once every rank has called it; until then this rank adds zeros to the others'
  /// steps. With no step since the last synchronization on any rank: those of rank 0.
  void synchronize_parameters(TensorList<T> parameters);
  /// Collective on `next`, which `Communicator::shrink` or `grow` gave, and with which the policy
  /// goes on. All have the parameters of the rank with most steps then (of those that have state,
  /// the lowest such rank), bit for bit, whichever of them had finished the step in which a rank
  /// was lost, and go on with its count of steps. Where it throws, call it on what `shrink` gives
  /// next.
  void resume(Communicator& next, TensorList<T> parameters);
  /// This rank's parameters are the job's from now on: they have been loaded from a checkpoint, or
  /// `sync_state` has given them. Steps count on. Of several ranks that declare other states
  /// `resume` takes one.
  void declare_state();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Elastic averaging (Zhang, Choromanska, LeCun 2015, arXiv 1412.6651), synchronous form.
template <class T>
class AllReduceEa {
 public:
  /// Averages every `tau`-th step (>= 1) with moving rate `alpha` (0 < alpha < 1); throws
  /// Error(invalid_argument) for others. The whole moves stably while alpha (ranks + 1) < 2; the
  /// paper takes alpha = 0.9 / ranks. `comm` must outlive the policy.
  AllReduceEa(Communicator& comm, int tau, double alpha);
  ~AllReduceEa();

  /// Call after every local step. At every tau-th: delta = alpha (parameters - center);
  /// parameters -= delta; center += sum of deltas. The first call sets center = parameters.
  void average_parameters(TensorList<T> parameters);
  /// Takes part in the others' averaging until every rank has called it, as torch-distlearn does:
  /// delta = alpha (parameters - center) is what it sends, and parameters -= delta, center += sum
  /// after each sum, except for the last one, which no rank's step is in any more. Then the center
  /// is broadcast from rank 0, which removes rounding drift, and steps are counted from 0 again. A
  /// rank without a step of its own sends zeros in its first sum. With no step since the last
  /// synchronization on any rank: only the broadcast.
  void synchronize_center(TensorList<T> parameters);
  /// The same wait; then the parameters are broadcast from rank 0 and become the center.
  void synchronize_parameters(TensorList<T> parameters);
  /// Collective on `next`, which `Communicator::shrink` or `grow` gave, and with which the policy
  /// goes on. All have the center of the rank that has ended most rounds then, bit for bit, and
  /// count steps from 0. A policy that had no center, as a newcomer's, takes it as its
  /// `parameters`; where nobody has one it is those of the lowest rank that has state. The others'
  /// stay as they are. So a round that has ended on any rank that is left is in the center. Where
  /// it has thrown on this rank all the same, the parameters have not moved by it, and the next one
  /// counts the difference anew. Where this throws, call it on what `shrink` gives next.
  void resume(Communicator& next, TensorList<T> parameters);
  /// As AllReduceSgd's; the parameters become the center where nobody has one.
  void declare_state();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct AsyncEaOptions {
  /// 0: every rank works, and owns an equal part of the center. Else the center lies on the first
  /// `servers` ranks alone, which do not work but call `serve`; the same on every rank.
  ///
  /// With 0 each rank links with every other one, else workers with servers alone. A link takes
  /// 0.7 MB and two descriptors at either end: beyond some hundred ranks use servers, and where
  /// there are as many links raise the limit of open files (ulimit -n).
  int servers = 0;
  /// Each worker keeps the center as its last exchange has left it: with these copies `resume`
  /// restores what an owner that has died had. It costs memory as large as the parameters, and
  /// writing that at every exchange; nothing more is sent. Without, the center ends with an owner.
  bool replicated = true;
  /// What the center lacks of an exchange that has thrown `resume` adds to it, and moves that much
  /// of the parameters by it. So the center has it once, in every element.
  bool completes = false;
};

/// Elastic averaging, asynchronous form: the center is there once, cut into parts that lie in the
/// memory of their owners. A worker exchanges with all owners at once and waits for no other
/// worker: each rank answers from a thread of its own, also while it computes or sleeps. A rank
/// that is slow therefore slows nobody, and nobody's update is lost or applied twice.
///
/// Collective, on all ranks alike: the constructor, synchronize_*, center, resume, and leaving. All
/// except the constructor, which has the deadline of `comm`, wait for the slowest rank, however
/// long it takes, as long as it lives. Calls that differ throw Error(mismatch) on every rank.
///
/// Memory: three times the parameters, twice where not `replicated`, and the part of the center.
template <class T>
class AsyncEa {
 public:
  /// `tau` and `alpha` as for AllReduceEa; `alpha` the same on every rank. Of `comm` it makes a
  /// communicator of its own, with the same ranks; `comm` may go first.
  AsyncEa(Communicator& comm, int tau, double alpha, const AsyncEaOptions& options = {});
  /// As `leave`.
  ~AsyncEa();

  /// Call after every local step. At every tau-th: delta = alpha (parameters - center);
  /// center += delta; parameters -= delta, element by element with the center as it is just then.
  /// True when it has exchanged. Not collective. Throws Error(invalid_argument) before the first
  /// synchronization. When it throws the parameters are as they were.
  bool average_parameters(TensorList<T> parameters);
  /// Waits for every rank; all their exchanges are in the center then. Counts steps from 0 again.
  /// The first call of this or the next makes the center: the parameters of the first worker. Else
  /// `parameters` are not looked at; they are never changed.
  void synchronize_center(TensorList<T> parameters);
  /// The same; then the parameters of every rank become the center, bit for bit.
  void synchronize_parameters(TensorList<T> parameters);
  /// Waits for every rank and writes the center to `center`, the same bits on every rank. Counts
  /// steps on.
  void center(TensorList<T> center);
  /// Servers only: answers until the workers destroy their policies.
  void serve();
  /// Collective on `next`, which `Communicator::shrink` gave, and with which the policy goes on,
  /// after any call has thrown an Error that is survivable. The center has every exchange that has
  /// ended on a rank that is left, once. Ranks that are new here, because they have just made their
  /// policy of `next`, or because there was no center yet, get the center as their `parameters`;
  /// where nobody has one it is those of the first worker that has state. The others' parameters
  /// stay as they are.
  /// Servers go on as servers and give no parameters; with none left every worker owns a part.
  /// Workers that had a center before may give none, too: then only the center is restored.
  ///
  /// An exchange that has thrown on this rank may be in the center, whole or in pieces, once: other
  /// ranks may have seen it. Returns of how many parameters that is so; 0 where none has thrown.
  /// See AsyncEaOptions::completes. Of
  /// a rank that has died the center has what the owners that are left, or a rank that exchanged
  /// with its own part later, have seen.
  ///
  /// Throws Error(unavailable), the same on every rank, where a part of the center is lost: see
  /// AsyncEaOptions::replicated. Then, as at first, a synchronization makes a new center. After
  /// another death, call it on what `shrink` gives next.
  size_t resume(Communicator& next, TensorList<T> parameters);
  /// As AllReduceEa's; of workers.
  void declare_state();
  /// Waits until every rank has come here, and answers the others until then. While an exception is
  /// being thrown, or after a failure, it does not wait: the others' calls then throw
  /// Error(aborted) that names this rank. Afterwards calls throw Error(invalid_argument). The
  /// second call does nothing.
  void leave();
  /// Breaks the policy on every rank with `reason`: calls under way and later ones throw
  /// Error(aborted) that names this rank. From any thread, also while another is in a call, `leave`
  /// among them, but not in the destructor.
  void abort(std::string_view reason);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk

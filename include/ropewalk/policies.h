// When to average, and what: the two policies of torch-distlearn, over lists of tensors.
//
// A tensor is a span; a list may hold tensors of any lengths, the same on every rank. Each policy
// moves the whole list in one fused operation per step. Ranks may take different numbers of steps,
// also none. T is float, double, float16 or bfloat16; halves are computed in float.
//
// Threads: not thread-safe; one thread per policy object. One policy object at a time may be
// between synchronizations on one communicator.
// Errors: Error(invalid_argument) when a list's total length differs from earlier calls on this
// rank, Error(mismatch) when it differs between ranks, and whatever the communicator throws. After
// a failed step the gradients or parameters of that call are as they were.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  AllReduceSgd(const AllReduceSgd&) = delete;
  AllReduceSgd& operator=(const AllReduceSgd&) = delete;

  /// Sums `gradients` over the ranks that still step; counts a step of this rank. Returns how many
  /// ranks contributed (ranks that wait in `synchronize_parameters` do not).
  int sum_gradients(TensorList<T> gradients);
  /// The same, then divides by the number of contributors where that is above 1.
  int sum_and_normalize_gradients(TensorList<T> gradients);
  /// Puts the parameters of the rank with most steps (the lowest such rank) on every rank,
  /// bit for bit, once every rank has called it; until then this rank adds zeros to the others'
  /// steps. With no step since the last synchronization on any rank: those of rank 0.
  void synchronize_parameters(TensorList<T> parameters);

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
  AllReduceEa(const AllReduceEa&) = delete;
  AllReduceEa& operator=(const AllReduceEa&) = delete;

  /// Call after every local step. At every tau-th: delta = alpha (parameters - center);
  /// parameters -= delta; center += sum of deltas. The first call sets center = parameters.
  void average_parameters(TensorList<T> parameters);
  /// Takes part in the others' averaging until every rank has called it, as torch-distlearn does:
  /// delta = alpha (parameters - center) and parameters -= delta before each sum, center += sum
  /// after it, but for the last sum, which no rank's step is in any more. Then the center is
  /// broadcast from rank 0, which removes rounding drift, and steps are counted from 0 again. A
  /// rank without a step of its own sends zeros in its first sum. With no step since the last
  /// synchronization on any rank: only the broadcast.
  void synchronize_center(TensorList<T> parameters);
  /// The same wait; then the parameters are broadcast from rank 0 and become the center.
  void synchronize_parameters(TensorList<T> parameters);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ropewalk

// A list of tensors as one vector, its tensors one behind the other; and what the policies refuse.
//
// A FusedList holds the tensors of a list in one registered buffer, so that a step is one
// all_reduce however many tensors there are.
//
// Layout, in elements of T: [tensors, one behind the other][contributed][stepped]
// `contributed` and `stepped` are tails of ceil(size / 128) elements; a rank raises its flag by
// adding 1 to element rank / 128 of a tail. So no element ever exceeds 128, and its sum is exact
// whatever the order of additions: even bfloat16, with 8 bits of significand, holds every integer
// up to 256. One counter for all ranks would stick at 256.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "reduce/element.h"
#include "ropewalk/policies.h"

namespace ropewalk {

/// Of all tensors together.
template <class T>
size_t elements_of(TensorList<T> list) {
  size_t total = 0;
  for (const std::span<T>& tensor : list) total += tensor.size();
  return total;
}

/// Throws Error(invalid_argument) where `policy` had other than `earlier` elements before.
template <class T>
void check_elements(const char* policy, TensorList<T> list, size_t earlier) {
  if (const size_t total = elements_of(list); total != earlier)
    throw Error(
        ErrorCode::invalid_argument, policy,
        fmt::format("the list of tensors has {} elements, but {} in earlier calls", total, earlier),
        "give every call of one policy object the same tensors (or their gradients)");
}

template <class T>
void pack(TensorList<T> list, T* to) {
  for (const std::span<T>& tensor : list) to = std::ranges::copy(tensor, to).out;
}

template <class T>
void unpack(const T* from, TensorList<T> list) {
  for (const std::span<T>& tensor : list) {
    std::copy(from, from + tensor.size(), tensor.begin());
    from += tensor.size();
  }
}

/// Goes through the elements of a list, from the first on.
template <class T>
class ListReader {
 public:
  explicit ListReader(TensorList<T> list) : list_(list) {}

  /// The next ones that lie together, one at least and `most` at most. Some must be left.
  std::span<T> next(size_t most) {
    while (at_ == list_[tensor_].size()) {
      ++tensor_;
      at_ = 0;
    }
    const std::span<T> rest = list_[tensor_].subspan(at_);
    const std::span<T> taken = rest.first(std::min(most, rest.size()));
    at_ += taken.size();
    return taken;
  }

 private:
  TensorList<T> list_;
  size_t tensor_ = 0, at_ = 0;  // of the next element
};

/// Of both kinds of elastic averaging.
inline void check_elastic(const char* policy, int tau, double alpha) {
  if (tau < 1)
    throw Error(ErrorCode::invalid_argument, policy, fmt::format("tau is {}", tau),
                "average at every tau-th step, with tau at least 1");
  if (!(alpha > 0 && alpha < 1))  // catches NaN too
    throw Error(ErrorCode::invalid_argument, policy, fmt::format("alpha is {}", alpha),
                "use a moving rate between 0 and 1, both excluded");
}

/// What elastic averaging moves by. The same bits wherever it is computed: meson.build sees to
/// that.
template <class T>
T elastic_difference(T parameter, T center, Wide<T> alpha) {
  return narrow<T>(alpha * (widen(parameter) - widen(center)));
}
template <class T>
T add(T a, T b) {
  return narrow<T>(widen(a) + widen(b));
}
template <class T>
T subtract(T a, T b) {
  return narrow<T>(widen(a) - widen(b));
}

/// How many ranks raised each flag in one round.
struct RoundCounts {
  int contributed = 0;  // ranks that made a step of their own in this round
  int stepped = 0;      // ranks that made a step since the last synchronization
};

/// Not thread-safe. Buffer and plan are made at the first `bind` on a communicator, and
/// kept.
template <class T>
class FusedList {
 public:
  /// `policy` names the caller in errors. Both must outlive this.
  FusedList(Communicator& comm, const char* policy) : comm_(&comm), policy_(policy) {}

  /// Goes on with another communicator. What the elements are is lost.
  void move_to(Communicator& comm) {
    plan_ = {};
    buffer_ = {};
    comm_ = &comm;
  }

  /// Call before anything is sent. The first list fixes the number of elements; throws
  /// Error(invalid_argument) when a later one has another.
  void bind(TensorList<T> list) {
    if (total_) check_elements(policy_, list, *total_);
    if (buffer_.data() != nullptr) return;
    const size_t total = elements_of(list);
    counters_ = (static_cast<size_t>(comm_->size()) + kRanksPerCounter - 1) / kRanksPerCounter;
    auto buffer = comm_->template allocate<T>(total + 2 * counters_);
    plan_ = comm_->plan(Call::all_reduce(buffer));
    buffer_ = std::move(buffer);
    total_ = total;
  }

  /// The elements of all tensors, without the tails. Valid after `bind`.
  std::span<T> elements() const { return buffer_.span().first(*total_); }

  void pack(TensorList<T> list) { ropewalk::pack(list, buffer_.data()); }
  void unpack(TensorList<T> list) const { ropewalk::unpack<T>(buffer_.data(), list); }
  void fill_zero() { std::ranges::fill(elements(), T{}); }

  /// One round: sums the elements over all ranks, in place, and counts the flags.
  RoundCounts all_reduce(bool contributes, bool stepped) {
    std::ranges::fill(buffer_.span().subspan(*total_), T{});
    const size_t mine = static_cast<size_t>(comm_->rank()) / kRanksPerCounter;
    if (contributes) tail(0)[mine] = narrow<T>(1);
    if (stepped) tail(1)[mine] = narrow<T>(1);
    plan_.run();
    return {count(tail(0)), count(tail(1))};
  }

  void broadcast(int root) { comm_->broadcast(elements(), root); }

 private:
  static constexpr size_t kRanksPerCounter = 128;

  std::span<T> tail(size_t which) const {
    return buffer_.span().subspan(*total_ + which * counters_, counters_);
  }

  static int count(std::span<const T> counters) {
    int sum = 0;
    for (T counter : counters) sum += static_cast<int>(widen(counter));
    return sum;
  }

  Communicator* comm_;
  const char* policy_;
  std::optional<size_t> total_;  // elements of the list; set by the first bind
  size_t counters_ = 0;          // elements of one tail
  Buffer<T> buffer_;
  Plan plan_;  // uses buffer_: must die first
};

}  // namespace ropewalk

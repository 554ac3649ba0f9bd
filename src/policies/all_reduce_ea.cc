// Elastic averaging, after torch-distlearn's AllReduceEA and arXiv 1412.6651.
//
// All ranks move in rounds, one all_reduce each: see all_reduce_sgd.cc for why that cannot
// deadlock. Here a rank contributes to a round at every tau-th step.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies/state_holder.h"
#include "policies/tensor_list.h"

namespace ropewalk {
namespace {

constexpr const char* kEaName = "AllReduceEa";

}  // namespace

template <class T>
class AllReduceEa<T>::Impl {
 public:
  Impl(Communicator& comm, int tau, double alpha)
      : comm_(&comm),
        fused_(comm, kEaName),
        tau_(tau),
        alpha_(static_cast<Wide<T>>(alpha)),
        has_state_(comm.epoch().number == 0) {
    check_elastic(kEaName, tau, alpha);
  }

  void average(TensorList<T> parameters) {
    bind(parameters);
    ++step_;
    if (step_ % tau_ != 0) return;
    put_differences(parameters);
    fused_.all_reduce(true, true);
    end_round(parameters);
  }

  void synchronize_center(TensorList<T> parameters) {
    bind(parameters);
    const bool moves = wait_for_all(parameters);
    if (comm_->rank() == 0) std::ranges::copy(center_, fused_.elements().begin());
    fused_.broadcast(0);
    if (moves)
      for_each(parameters, [this](T& parameter, T& center, T&) { move(parameter, center); });
    take_center();
  }

  void synchronize_parameters(TensorList<T> parameters) {
    bind(parameters);
    const bool moves = wait_for_all(parameters);
    if (comm_->rank() == 0) {
      for_each(parameters, [&](const T& parameter, T& center, T& sent) {
        sent = parameter;
        if (moves) move(sent, center);
      });
    }
    fused_.broadcast(0);
    fused_.unpack(parameters);
    take_center();
  }

  /// The center is that of the rank with most rounds: it has every round that has ended on any.
  void resume(Communicator& next, TensorList<T> parameters) {
    comm_ = &next;
    fused_.move_to(next);
    fused_.bind(parameters);
    // Nobody has made a round where those who have state have no center yet.
    const bool has_center = has_state_ && !center_.empty();
    const StateHolder from = find_state(next, kEaName, has_state_, has_center ? rounds_ + 1 : 0);
    if (next.rank() == from.rank) {
      if (has_center)
        std::ranges::copy(center_, fused_.elements().begin());
      else
        fused_.pack(parameters);
    }
    fused_.broadcast(from.rank);
    if (!has_center) fused_.unpack(parameters);
    take_center();
    rounds_ = from.progress;
  }

  void declare_state() {
    if (!has_state_) center_.clear();  // of parameters that were none of the job's
    has_state_ = true;
  }

 private:
  /// At first use the center is a copy of the parameters.
  void bind(TensorList<T> parameters) {
    fused_.bind(parameters);
    if (!center_.empty()) return;
    fused_.pack(parameters);
    center_.assign(fused_.elements().begin(), fused_.elements().end());
  }

  /// Takes part in the others' rounds until all ranks are here, and moves toward the center once a
  /// round like them: in every round all ranks see the same center, so that they approach each
  /// other whatever their numbers of steps. The last round's sum is dropped; returns whether the
  /// parameters are to move in it, which waits until the synchronization has succeeded.
  ///
  /// Moves nothing when no rank has made a step since the last synchronization. A rank without a
  /// step of its own cannot know that of the others: it enters the first round with zeros, and
  /// makes up for its own move (which the center never sees) when the flags say that one stepped.
  bool wait_for_all(TensorList<T> parameters) {
    const bool stepped = step_ > 0;
    if (!stepped) fused_.fill_zero();
    for (bool is_first = true;; is_first = false) {
      if (stepped || !is_first) put_differences(parameters);
      const RoundCounts counts = fused_.all_reduce(false, stepped);
      if (counts.contributed == 0) return counts.stepped > 0;
      end_round(parameters);
    }
  }

  void put_differences(TensorList<T> parameters) {
    for_each(parameters, [this](T& parameter, T& center, T& moved) {
      moved = elastic_difference(parameter, center, alpha_);
    });
  }
  /// The sum has taken the difference's place, so this computes that again (the same bits).
  /// Touching the parameters only now leaves them as they were when the round fails.
  void end_round(TensorList<T> parameters) {
    for_each(parameters, [this](T& parameter, T& center, T& moved) {
      move(parameter, center);
      center = add(center, moved);
    });
    ++rounds_;
  }
  void move(T& parameter, T center) const {
    parameter = subtract(parameter, elastic_difference(parameter, center, alpha_));
  }

  /// From fused_, on every rank: as a round.
  void take_center() {
    center_.assign(fused_.elements().begin(), fused_.elements().end());
    ++rounds_;
    step_ = 0;
    has_state_ = true;
  }

  /// Calls visit(parameter, center, element of the fused buffer) for every element.
  template <class Visit>
  void for_each(TensorList<T> parameters, Visit visit) {
    T* center = center_.data();
    T* moved = fused_.elements().data();
    for (const std::span<T>& tensor : parameters)
      for (T& parameter : tensor) visit(parameter, *center++, *moved++);
  }

  Communicator* comm_;
  FusedList<T> fused_;     // holds differences, and their sum after a round
  std::vector<T> center_;  // empty: none yet
  const int tau_;
  const Wide<T> alpha_;
  int64_t step_ = 0;  // of this rank, since the last synchronization
  // That the center has. A round may end on some ranks and fail on others.
  int64_t rounds_ = 0;
  bool has_state_;
};

template <class T>
AllReduceEa<T>::AllReduceEa(Communicator& comm, int tau, double alpha)
    : impl_(std::make_unique<Impl>(comm, tau, alpha)) {}

template <class T>
AllReduceEa<T>::~AllReduceEa() = default;

template <class T>
void AllReduceEa<T>::average_parameters(TensorList<T> parameters) {
  impl_->average(parameters);
}

template <class T>
void AllReduceEa<T>::synchronize_center(TensorList<T> parameters) {
  impl_->synchronize_center(parameters);
}

template <class T>
void AllReduceEa<T>::synchronize_parameters(TensorList<T> parameters) {
  impl_->synchronize_parameters(parameters);
}

template <class T>
void AllReduceEa<T>::resume(Communicator& next, TensorList<T> parameters) {
  impl_->resume(next, parameters);
}

template <class T>
void AllReduceEa<T>::declare_state() {
  impl_->declare_state();
}

#define ROPEWALK_INSTANTIATE(name, type) template class AllReduceEa<type>;
ROPEWALK_DATA_TYPES(ROPEWALK_INSTANTIATE, ROPEWALK_NOTHING)
#undef ROPEWALK_INSTANTIATE

}  // namespace ropewalk

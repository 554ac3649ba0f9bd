// Elastic averaging, after torch-distlearn's AllReduceEA and arXiv 1412.6651.
//
// All ranks move in rounds, one all_reduce each: see all_reduce_sgd.cc for why that cannot
// deadlock. Here a rank contributes to a round at every tau-th step.
#include <cstdint>
#include <utility>

#include "policies/tensor_list.h"

namespace ropewalk {

template <class T>
class AllReduceEa<T>::Impl {
 public:
  Impl(Communicator& comm, int tau, double alpha)
      : comm_(&comm), fused_(comm, "AllReduceEa"), tau_(tau), alpha_(static_cast<Wide<T>>(alpha)) {
    check_elastic("AllReduceEa", tau, alpha);
  }

  void average(TensorList<T> parameters) {
    bind(parameters);
    ++step_;
    if (step_ % tau_ != 0) return;
    for_each(parameters, [this](T& parameter, T& center, T& moved) {
      moved = elastic_difference(parameter, center, alpha_);
    });
    fused_.all_reduce(true, true);
    // The sum has taken the difference's place, so compute that again (the same bits). Touching the
    // parameters only now leaves them as they were when the round fails.
    for_each(parameters, [this](T& parameter, T& center, T& moved) {
      parameter = subtract(parameter, elastic_difference(parameter, center, alpha_));
      center = add(center, moved);
    });
  }

  void synchronize_center(TensorList<T> parameters) {
    bind(parameters);
    wait_for_all(parameters);
    comm_->broadcast(center_.span(), 0);
  }

  void resume(Communicator& next, TensorList<T> parameters) {
    comm_ = &next;
    fused_.move_to(next);
    bind(parameters);
    // The center stays here where any of this throws: a later resume needs it.
    Buffer<T> moved = next.template allocate<T>(center_.size());
    std::ranges::copy(center_, moved.begin());
    center_ = std::move(moved);
    wait_for_all(parameters);
    comm_->broadcast(center_.span(), 0);
  }

  void synchronize_parameters(TensorList<T> parameters) {
    bind(parameters);
    wait_for_all(parameters);
    if (comm_->rank() == 0) fused_.pack(parameters);
    fused_.broadcast(0);
    fused_.unpack(parameters);
    std::ranges::copy(fused_.elements(), center_.begin());
  }

 private:
  /// At first use the center is a copy of the parameters.
  void bind(TensorList<T> parameters) {
    fused_.bind(parameters);
    if (center_.size() == fused_.elements().size()) return;
    center_ = comm_->template allocate<T>(fused_.elements().size());
    fused_.pack(parameters);
    std::ranges::copy(fused_.elements(), center_.begin());
  }

  /// Takes part in the others' rounds until all ranks are here, and moves toward the center once a
  /// round like them: in every round all ranks see the same center, so that they approach each
  /// other whatever their numbers of steps. The last round's sum is dropped.
  ///
  /// Moves nothing when no rank has made a step since the last synchronization. A rank without a
  /// step of its own cannot know that of the others: it enters the first round with zeros, and
  /// makes up for its own move (which the center never sees) when the flags say that one stepped.
  void wait_for_all(TensorList<T> parameters) {
    const bool stepped = step_ > 0;
    if (stepped)
      move(parameters);
    else
      fused_.fill_zero();
    RoundCounts counts = fused_.all_reduce(false, stepped);
    if (!stepped && counts.stepped > 0) {
      for_each(parameters, [this](T& parameter, T& center, T&) {
        parameter = subtract(parameter, elastic_difference(parameter, center, alpha_));
      });
    }
    while (counts.contributed > 0) {
      for_each(parameters, [](T&, T& center, T& moved) { center = add(center, moved); });
      move(parameters);
      counts = fused_.all_reduce(false, stepped);
    }
    step_ = 0;
  }

  /// Moves the parameters toward the center and leaves the difference to be summed.
  void move(TensorList<T> parameters) {
    for_each(parameters, [this](T& parameter, T& center, T& moved) {
      moved = elastic_difference(parameter, center, alpha_);
      parameter = subtract(parameter, moved);
    });
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
  FusedList<T> fused_;  // holds differences, and their sum after a round
  Buffer<T> center_;
  const int tau_;
  const Wide<T> alpha_;
  int64_t step_ = 0;  // of this rank, since the last synchronization
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

#define ROPEWALK_INSTANTIATE(name, type) template class AllReduceEa<type>;
ROPEWALK_DATA_TYPES(ROPEWALK_INSTANTIATE, ROPEWALK_NOTHING)
#undef ROPEWALK_INSTANTIATE

}  // namespace ropewalk

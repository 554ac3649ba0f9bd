// Synchronous data-parallel SGD, after torch-distlearn's AllReduceSGD.
//
// All ranks move in rounds, one all_reduce each. In a round a rank either contributes a step or,
// once in synchronize_parameters, adds zeros; the round's count of contributors is the same number
// on every rank. All leave synchronize_parameters after the first round without contributors, so
// no rank can wait for a round that another does not enter, whatever numbers of steps they do.
#include <cstdint>

#include "policies/state_holder.h"
#include "policies/tensor_list.h"
#include "reduce/reduce.h"

namespace ropewalk {
namespace {

constexpr const char* kSgdName = "AllReduceSgd";

}  // namespace

template <class T>
class AllReduceSgd<T>::Impl {
 public:
  explicit Impl(Communicator& comm)
      : comm_(&comm), fused_(comm, kSgdName), has_state_(comm.epoch().number == 0) {}

  int step(TensorList<T> gradients, bool normalize) {
    fused_.bind(gradients);
    fused_.pack(gradients);
    const int contributors = fused_.all_reduce(true, true).contributed;
    if (normalize && contributors > 1) {
      const std::span<T> sums = fused_.elements();
      divide(reinterpret_cast<std::byte*>(sums.data()), sums.size(), data_type_of<T>(),
             contributors);
    }
    fused_.unpack(gradients);
    ++steps_;
    return contributors;
  }

  /// Steps are counted on all ranks as on the one whose parameters they take, also where none has
  /// made a step since a synchronization: newcomers have counted none.
  void resume(Communicator& next, TensorList<T> parameters) {
    comm_ = &next;
    fused_.move_to(next);
    fused_.bind(parameters);
    take_over(find_state(next, kSgdName, has_state_, steps_), parameters);
  }

  void synchronize(TensorList<T> parameters) {
    fused_.bind(parameters);
    const bool any_stepped = wait_for_all();
    take_over(any_stepped ? find_state(*comm_, kSgdName, true, steps_) : StateHolder{0, steps_},
              parameters);
  }

  void declare_state() { has_state_ = true; }

 private:
  /// Adds zeros to the others' steps until all ranks are here. Returns whether any rank has made a
  /// step since the last synchronization.
  bool wait_for_all() {
    RoundCounts counts;
    do {
      fused_.fill_zero();
      counts = fused_.all_reduce(false, steps_ > synchronized_steps_);
    } while (counts.contributed > 0);
    return counts.stepped > 0;
  }

  void take_over(const StateHolder& from, TensorList<T> parameters) {
    if (comm_->rank() == from.rank) fused_.pack(parameters);
    fused_.broadcast(from.rank);
    fused_.unpack(parameters);
    steps_ = synchronized_steps_ = from.progress;
    has_state_ = true;
  }

  Communicator* comm_;
  FusedList<T> fused_;
  // Steps that the parameters have made. A synchronization may end on some ranks and fail on
  // others: then the former have as many as the rank that made most, and no less.
  int64_t steps_ = 0;
  int64_t synchronized_steps_ = 0;  // with the last synchronization that ended here
  bool has_state_;
};

template <class T>
AllReduceSgd<T>::AllReduceSgd(Communicator& comm) : impl_(std::make_unique<Impl>(comm)) {}

template <class T>
AllReduceSgd<T>::~AllReduceSgd() = default;

template <class T>
int AllReduceSgd<T>::sum_gradients(TensorList<T> gradients) {
  return impl_->step(gradients, false);
}

template <class T>
int AllReduceSgd<T>::sum_and_normalize_gradients(TensorList<T> gradients) {
  return impl_->step(gradients, true);
}

template <class T>
void AllReduceSgd<T>::synchronize_parameters(TensorList<T> parameters) {
  impl_->synchronize(parameters);
}

template <class T>
void AllReduceSgd<T>::resume(Communicator& next, TensorList<T> parameters) {
  impl_->resume(next, parameters);
}

template <class T>
void AllReduceSgd<T>::declare_state() {
  impl_->declare_state();
}

#define ROPEWALK_INSTANTIATE(name, type) template class AllReduceSgd<type>;
ROPEWALK_DATA_TYPES(ROPEWALK_INSTANTIATE, ROPEWALK_NOTHING)
#undef ROPEWALK_INSTANTIATE

}  // namespace ropewalk

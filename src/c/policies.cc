// The policies, of a type that is known at run time.
#include "ropewalk/policies.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "c/calls.h"
#include "ropewalk/elastic_async_ea.h"
#include "ropewalk/partial.h"

namespace ropewalk::c {
namespace {

template <class T>
std::vector<std::span<T>> tensors_of(const rw_tensor* tensors, size_t count) {
  require_array(tensors, count, "tensors");
  std::vector<std::span<T>> spans;
  for (const auto& [data, elements] : std::span(tensors, count)) {
    require_array(data, elements, "a tensor's data");
    spans.emplace_back(static_cast<T*>(data), elements);
  }
  return spans;
}

/// Calls `use` with the C++ type of `type`, which policies must be able to average.
template <class Use>
void with_floating(int type, const Use& use) {
  visit_type(type_of(type), [&]<class T>(std::type_identity<T> same) {
    if constexpr (!std::is_integral_v<T>) return use(same);
    reject(fmt::format("elements are {}", name_of(data_type_of<T>())), "use a floating type");
  });
}

}  // namespace

/// A policy of any floating type. Keeps the communicator that it works on.
template <template <class> class Policy>
class AnyPolicy {
 public:
  template <class... Arguments>
  AnyPolicy(rw_type type, std::shared_ptr<Communicator> comm, const Arguments&... arguments)
      : type_(type), comm_(std::move(comm)) {
    with_floating(type, [&]<class T>(std::type_identity<T>) {
      policy_ = std::make_shared<Policy<T>>(*comm_, arguments...);
    });
  }

  /// Calls `action(policy, list)`.
  template <class Action>
  void apply(const rw_tensor* tensors, size_t count, const Action& action) {
    with_floating(type_, [&]<class T>(std::type_identity<T>) {
      const auto spans = tensors_of<T>(tensors, count);
      action(*static_cast<Policy<T>*>(policy_.get()), TensorList<T>(spans));
    });
  }
  /// `action` has it go on with `next`, which it then keeps in place of what it had.
  template <class Action>
  void resume(std::shared_ptr<Communicator> next, const rw_tensor* tensors, size_t count,
              const Action& action) {
    apply(tensors, count, [&](auto& policy, auto list) {
      followed_.push_back(std::exchange(comm_, std::move(next)));
      action(policy, *comm_, list);
    });
    followed_.clear();
  }

 private:
  rw_type type_;
  std::shared_ptr<Communicator> comm_;
  std::vector<std::shared_ptr<Communicator>> followed_;  // where `resume` has thrown
  std::shared_ptr<void> policy_;                         // goes first
};

/// It has its communicator itself, and starts with a list.
class AnyElasticEa {
 public:
  AnyElasticEa(rw_type type, const std::shared_ptr<Communicator>& comm, int tau, double alpha,
               const rw_tensor* tensors, size_t count,
               std::optional<std::chrono::nanoseconds> timeout, bool has_state)
      : type_(type) {
    with_floating(type, [&]<class T>(std::type_identity<T>) {
      const auto spans = tensors_of<T>(tensors, count);
      policy_ = std::make_shared<ElasticAsyncEa<T>>(comm, tau, alpha, TensorList<T>(spans),
                                                    timeout.value_or(std::chrono::seconds(30)),
                                                    has_state);
    });
  }

  template <class Action>
  void apply(const rw_tensor* tensors, size_t count, const Action& action) {
    with_floating(type_, [&]<class T>(std::type_identity<T>) {
      const auto spans = tensors_of<T>(tensors, count);
      action(*static_cast<ElasticAsyncEa<T>*>(policy_.get()), TensorList<T>(spans));
    });
  }

 private:
  rw_type type_;
  std::shared_ptr<void> policy_;
};

struct HeldPartial {
  HeldPartial(Communicator& comm, size_t count, DataType type) : reducer(comm, count, type) {}
  internal::PartialReducer reducer;
};

ROPEWALK_C_HANDLE(rw_sgd, AnyPolicy<AllReduceSgd>)
ROPEWALK_C_HANDLE(rw_ea, AnyPolicy<AllReduceEa>)
ROPEWALK_C_HANDLE(rw_async_ea, AnyPolicy<AsyncEa>)
ROPEWALK_C_HANDLE(rw_elastic_ea, AnyElasticEa)
ROPEWALK_C_HANDLE(rw_partial, HeldPartial)

namespace {

/// Calls `action(policy, list)`.
template <class Handle, class Action>
rw_status apply(const char* operation, Handle policy, const rw_tensor* tensors, size_t count,
                const Action& action) {
  return guarded(operation, [&] { look_up(policy)->apply(tensors, count, action); });
}
/// What `action(policy, list)` gives is told.
template <class Handle, class Result, class Action>
rw_status apply(const char* operation, Handle policy, const rw_tensor* tensors, size_t count,
                Result* result, const Action& action) {
  return guarded(operation, [&] {
    Result& told = required(result, "the result");
    look_up(policy)->apply(tensors, count, [&](auto& of, auto list) { told = action(of, list); });
  });
}
template <class Handle>
rw_status resume(const char* operation, Handle policy, rw_comm next, const rw_tensor* tensors,
                 size_t count) {
  return guarded(operation, [&] {
    look_up(policy)->resume(communicator_of(next), tensors, count,
                            [](auto& of, auto& comm, auto list) { of.resume(comm, list); });
  });
}

thread_local PartialSum told_sum;  // of this thread, until its next

void fill(Filled<rw_partial_sum>& filled, PartialSum sum) {
  told_sum = std::move(sum);
  filled.fill({sizeof(rw_partial_sum), told_sum.contributions.data(),
               static_cast<int>(told_sum.contributions.size()), told_sum.rounds, told_sum.total()});
}

}  // namespace
}  // namespace ropewalk::c

using namespace ropewalk;
using namespace ropewalk::c;

extern "C" {

rw_status rw_sgd_create(rw_comm comm, rw_type type, rw_sgd* sgd) {
  return guarded(__func__, [&] { NewHandle(sgd).make(type, communicator_of(comm)); });
}
rw_status rw_sgd_sum_gradients(rw_sgd sgd, const rw_tensor* gradients, size_t count,
                               int* contributors) {
  return apply(__func__, sgd, gradients, count, contributors,
               [](auto& of, auto list) { return of.sum_gradients(list); });
}
rw_status rw_sgd_sum_and_normalize_gradients(rw_sgd sgd, const rw_tensor* gradients, size_t count,
                                             int* contributors) {
  return apply(__func__, sgd, gradients, count, contributors,
               [](auto& of, auto list) { return of.sum_and_normalize_gradients(list); });
}
rw_status rw_sgd_synchronize_parameters(rw_sgd sgd, const rw_tensor* parameters, size_t count) {
  return apply(__func__, sgd, parameters, count,
               [](auto& of, auto list) { of.synchronize_parameters(list); });
}
rw_status rw_sgd_resume(rw_sgd sgd, rw_comm next, const rw_tensor* parameters, size_t count) {
  return resume(__func__, sgd, next, parameters, count);
}
rw_status rw_sgd_declare_state(rw_sgd sgd) {
  return apply(__func__, sgd, nullptr, 0, [](auto& of, auto) { of.declare_state(); });
}
rw_status rw_sgd_free(rw_sgd sgd) {
  return release(__func__, sgd);
}

rw_status rw_ea_create(rw_comm comm, rw_type type, int tau, double alpha, rw_ea* ea) {
  return guarded(__func__, [&] { NewHandle(ea).make(type, communicator_of(comm), tau, alpha); });
}
rw_status rw_ea_average_parameters(rw_ea ea, const rw_tensor* parameters, size_t count) {
  return apply(__func__, ea, parameters, count,
               [](auto& of, auto list) { of.average_parameters(list); });
}
rw_status rw_ea_synchronize_center(rw_ea ea, const rw_tensor* parameters, size_t count) {
  return apply(__func__, ea, parameters, count,
               [](auto& of, auto list) { of.synchronize_center(list); });
}
rw_status rw_ea_synchronize_parameters(rw_ea ea, const rw_tensor* parameters, size_t count) {
  return apply(__func__, ea, parameters, count,
               [](auto& of, auto list) { of.synchronize_parameters(list); });
}
rw_status rw_ea_resume(rw_ea ea, rw_comm next, const rw_tensor* parameters, size_t count) {
  return resume(__func__, ea, next, parameters, count);
}
rw_status rw_ea_declare_state(rw_ea ea) {
  return apply(__func__, ea, nullptr, 0, [](auto& of, auto) { of.declare_state(); });
}
rw_status rw_ea_free(rw_ea ea) {
  return release(__func__, ea);
}

rw_status rw_async_ea_create(rw_comm comm, rw_type type, int tau, double alpha,
                             const rw_async_ea_options* options, rw_async_ea* ea) {
  return guarded(__func__, [&] {
    NewHandle made(ea);
    const auto given = take_optional(options);
    const AsyncEaOptions chosen{given.servers, switch_of(given.replicated).value_or(true),
                                switch_of(given.completes).value_or(false)};
    made.make(type, communicator_of(comm), tau, alpha, chosen);
  });
}
rw_status rw_async_ea_average_parameters(rw_async_ea ea, const rw_tensor* parameters, size_t count,
                                         bool* exchanged) {
  return apply(__func__, ea, parameters, count, exchanged,
               [](auto& of, auto list) { return of.average_parameters(list); });
}
rw_status rw_async_ea_synchronize_center(rw_async_ea ea, const rw_tensor* parameters,
                                         size_t count) {
  return apply(__func__, ea, parameters, count,
               [](auto& of, auto list) { of.synchronize_center(list); });
}
rw_status rw_async_ea_synchronize_parameters(rw_async_ea ea, const rw_tensor* parameters,
                                             size_t count) {
  return apply(__func__, ea, parameters, count,
               [](auto& of, auto list) { of.synchronize_parameters(list); });
}
rw_status rw_async_ea_center(rw_async_ea ea, const rw_tensor* center, size_t count) {
  return apply(__func__, ea, center, count, [](auto& of, auto list) { of.center(list); });
}
rw_status rw_async_ea_serve(rw_async_ea ea) {
  return apply(__func__, ea, nullptr, 0, [](auto& of, auto) { of.serve(); });
}
rw_status rw_async_ea_resume(rw_async_ea ea, rw_comm next, const rw_tensor* parameters,
                             size_t count, size_t* unsure) {
  return guarded(__func__, [&] {
    size_t& told = required(unsure, "unsure");
    look_up(ea)->resume(communicator_of(next), parameters, count,
                        [&](auto& of, auto& comm, auto list) { told = of.resume(comm, list); });
  });
}
rw_status rw_async_ea_declare_state(rw_async_ea ea) {
  return apply(__func__, ea, nullptr, 0, [](auto& of, auto) { of.declare_state(); });
}
rw_status rw_async_ea_leave(rw_async_ea ea) {
  return apply(__func__, ea, nullptr, 0, [](auto& of, auto) { of.leave(); });
}
rw_status rw_async_ea_abort(rw_async_ea ea, const char* reason) {
  return apply(__func__, ea, nullptr, 0,
               [&](auto& of, auto) { of.abort(&required(reason, "reason")); });
}
rw_status rw_async_ea_free(rw_async_ea ea) {
  return release(__func__, ea);
}

rw_status rw_elastic_ea_create(rw_comm comm, rw_type type, int tau, double alpha,
                               const rw_tensor* parameters, size_t count, int64_t timeout_ns,
                               bool has_state, rw_elastic_ea* ea) {
  return guarded(__func__, [&] {
    NewHandle(ea).make(type, communicator_of(comm), tau, alpha, parameters, count,
                       timeout_of(timeout_ns), has_state);
  });
}
rw_status rw_elastic_ea_average_parameters(rw_elastic_ea ea, const rw_tensor* parameters,
                                           size_t count, bool* exchanged) {
  return apply(__func__, ea, parameters, count, exchanged,
               [](auto& of, auto list) { return of.average_parameters(list); });
}
rw_status rw_elastic_ea_steps(rw_elastic_ea ea, uint64_t* steps) {
  return apply(__func__, ea, nullptr, 0, steps, [](auto& of, auto) { return of.steps(); });
}
rw_status rw_elastic_ea_membership(rw_elastic_ea ea, rw_membership* membership) {
  return guarded(__func__, [&] {
    required(membership, "membership");
    Filled filled(membership);
    look_up(ea)->apply(nullptr, 0, [&](auto& of, auto) {
      const Membership known = of.membership();
      filled.fill({sizeof(rw_membership), known.epoch, known.rank, known.size});
    });
  });
}
rw_status rw_elastic_ea_finish(rw_elastic_ea ea, const rw_tensor* parameters, size_t count) {
  return apply(__func__, ea, parameters, count, [](auto& of, auto list) { of.finish(list); });
}
rw_status rw_elastic_ea_leave(rw_elastic_ea ea) {
  return apply(__func__, ea, nullptr, 0, [](auto& of, auto) { of.leave(); });
}
rw_status rw_elastic_ea_abort(rw_elastic_ea ea, const char* reason) {
  return apply(__func__, ea, nullptr, 0,
               [&](auto& of, auto) { of.abort(&required(reason, "reason")); });
}
rw_status rw_elastic_ea_free(rw_elastic_ea ea) {
  return release(__func__, ea);
}

rw_status rw_partial_create(rw_comm comm, size_t count, rw_type type, rw_partial* partial) {
  return guarded(__func__,
                 [&] { NewHandle(partial).make(*communicator_of(comm), count, type_of(type)); });
}
rw_status rw_partial_all_reduce(rw_partial partial, void* data, size_t count, int64_t patience_ns,
                                rw_partial_sum* sum) {
  return guarded(__func__, [&] {
    Filled filled(sum);
    require_array(data, count, "data");
    fill(filled, look_up(partial)->reducer.all_reduce(data, count, limit_of(patience_ns)));
  });
}
rw_status rw_partial_finish(rw_partial partial, void* rest, size_t count, rw_partial_sum* sum) {
  return guarded(__func__, [&] {
    Filled filled(sum);
    require_array(rest, count, "rest");
    fill(filled, look_up(partial)->reducer.finish(rest, count));
  });
}
rw_status rw_partial_abort(rw_partial partial, const char* reason) {
  return guarded(__func__, [&] { look_up(partial)->reducer.abort(&required(reason, "reason")); });
}
rw_status rw_partial_free(rw_partial partial) {
  return release(__func__, partial);
}

}  // extern "C"

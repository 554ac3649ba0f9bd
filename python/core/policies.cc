// The two policies over lists of arrays. The first list's dtype chooses the C++ template.
#include "policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/shared_ptr.h>

#include <functional>
#include <memory>
#include <mutex>
#include <variant>

#include "invalid.h"
#include "ropewalk/policies.h"
#include "session.h"

namespace ropewalk::python {
namespace {

template <template <class> class Policy>
using AnyPolicy = PolicyVariant<Policy, std::monostate>;

/// One policy of either kind, made when the first list tells its type. Destroyed with the GIL held.
template <template <class> class Policy, class... Arguments>
class LazyPolicy {
 public:
  LazyPolicy(std::shared_ptr<Session> session, const char* name, Arguments... arguments)
      : session_(std::move(session)),
        name_(name),
        arguments_(arguments...),
        has_state_(session_->open().epoch().number == 0) {
    make<float>();  // refuses wrong arguments now
    policy_ = {};
  }
  LazyPolicy(const LazyPolicy&) = delete;
  LazyPolicy& operator=(const LazyPolicy&) = delete;
  ~LazyPolicy() {
    if (session_->is_forked()) {
      abandon(std::move(policy_));
      return;
    }
    nb::gil_scoped_release unlocked;
    policy_ = {};
  }

  /// Goes on with `next`: calls policy.resume.
  void resume(std::shared_ptr<Session> next, const nb::sequence& list) {
    view_list(list, name_, "parameters");  // refuses a wrong list while all is as it was
    {
      nb::gil_scoped_release unlocked;
      std::lock_guard lock(mutex_);
      session_.swap(next);
    }
    apply(list, "parameters",
          [this](auto& policy, auto tensors) { policy.resume(session_->open(), tensors); });
  }

  void declare_state() {
    nb::gil_scoped_release unlocked;
    std::lock_guard lock(mutex_);
    has_state_ = true;
    std::visit(
        [](auto& policy) {
          if constexpr (requires { policy->declare_state(); }) policy->declare_state();
        },
        policy_);
  }

  /// Calls `action(policy, tensors)` without the GIL.
  template <class Action>
  auto apply(const nb::sequence& list, const char* argument, Action action) {
    const std::vector<Array> arrays = view_list(list, name_, argument);
    session_->open();
    nb::gil_scoped_release unlocked;
    std::lock_guard lock(mutex_);
    using Result = decltype(apply_as<float>(arrays, action));
    return visit_type(arrays[0].type, [&]<class T>(std::type_identity<T>) -> Result {
      if constexpr (!std::is_integral_v<T>) return apply_as<T>(arrays, action);
      reject(name_, fmt::format("{} have dtype {}", argument, name_of(arrays[0].type)),
             floating_types_advice());
    });
  }

 private:
  template <class T>
  Policy<T>& make() {
    Policy<T>& made = *std::apply(
        [this](Arguments... arguments) -> std::unique_ptr<Policy<T>>& {
          return policy_.template emplace<std::unique_ptr<Policy<T>>>(
              std::make_unique<Policy<T>>(session_->open(), arguments...));
        },
        arguments_);
    if (has_state_) made.declare_state();
    return made;
  }

  template <class T>
  Policy<T>& policy_of() {
    if (std::holds_alternative<std::monostate>(policy_)) return make<T>();
    if (auto* made = std::get_if<std::unique_ptr<Policy<T>>>(&policy_)) return **made;
    reject(name_,
           fmt::format("the arrays have dtype {}, unlike in earlier calls",
                       name_of(data_type_of<T>())),
           "use one policy object per dtype");
  }

  template <class T, class Action>
  auto apply_as(const std::vector<Array>& arrays, Action action) {
    const auto tensors = spans_of<T>(arrays);
    return action(policy_of<T>(), TensorList<T>(tensors));
  }

  std::shared_ptr<Session> session_;  // first: goes last
  const char* name_;
  std::tuple<Arguments...> arguments_;
  std::mutex mutex_;  // guards what follows
  bool has_state_;    // of a policy that is not made yet, perhaps in a later epoch
  AnyPolicy<Policy> policy_;
};

class Sgd : public LazyPolicy<AllReduceSgd> {
 public:
  explicit Sgd(std::shared_ptr<Session> session) : LazyPolicy(std::move(session), "AllReduceSGD") {}

  int sum_gradients(const nb::sequence& list) {
    return apply(list, "gradients",
                 [](auto& policy, auto tensors) { return policy.sum_gradients(tensors); });
  }
  int sum_and_normalize_gradients(const nb::sequence& list) {
    return apply(list, "gradients", [](auto& policy, auto tensors) {
      return policy.sum_and_normalize_gradients(tensors);
    });
  }
  void synchronize_parameters(const nb::sequence& list) {
    apply(list, "parameters",
          [](auto& policy, auto tensors) { policy.synchronize_parameters(tensors); });
  }
};

class Ea : public LazyPolicy<AllReduceEa, int, double> {
 public:
  Ea(std::shared_ptr<Session> session, int tau, double alpha)
      : LazyPolicy(std::move(session), "AllReduceEA", tau, alpha) {}

  void average_parameters(const nb::sequence& list) {
    apply(list, "parameters",
          [](auto& policy, auto tensors) { policy.average_parameters(tensors); });
  }
  void synchronize_center(const nb::sequence& list) {
    apply(list, "parameters",
          [](auto& policy, auto tensors) { policy.synchronize_center(tensors); });
  }
  void synchronize_parameters(const nb::sequence& list) {
    apply(list, "parameters",
          [](auto& policy, auto tensors) { policy.synchronize_parameters(tensors); });
  }
};

}  // namespace

std::string floating_types_advice() {
  std::vector<std::string> words = names<DataType>(kDataTypes);
  std::erase_if(words,
                [](const std::string& word) { return !is_floating(*data_type_named(word)); });
  return fmt::format("use one of {}", fmt::join(words, ", "));
}

std::vector<Array> view_list(const nb::sequence& list, const char* operation,
                             const char* argument) {
  std::vector<Array> arrays;
  for (nb::handle item : list) {
    const std::string name = fmt::format("{}[{}]", argument, arrays.size());
    arrays.push_back(view_array(item, operation, name, Access::write));
    if (arrays.back().type != arrays.front().type)
      reject(operation,
             fmt::format("{} has dtype {}, but {}[0] has {}", name, name_of(arrays.back().type),
                         argument, name_of(arrays.front().type)),
             "use one policy object per dtype");
  }
  if (arrays.empty())
    reject(operation, fmt::format("{} is empty", argument), "give at least one array");
  return arrays;
}

void bind_policies(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Sgd>(module, "Sgd")
      .def(nb::init<std::shared_ptr<Session>>(), "session"_a)
      .def("sum_gradients", &Sgd::sum_gradients, "gradients"_a)
      .def("sum_and_normalize_gradients", &Sgd::sum_and_normalize_gradients, "gradients"_a)
      .def("synchronize_parameters", &Sgd::synchronize_parameters, "parameters"_a)
      .def("resume", &Sgd::resume, "session"_a, "parameters"_a)
      .def("declare_state", &Sgd::declare_state);
  nb::class_<Ea>(module, "Ea")
      .def(nb::init<std::shared_ptr<Session>, int, double>(), "session"_a, "tau"_a, "alpha"_a)
      .def("average_parameters", &Ea::average_parameters, "parameters"_a)
      .def("synchronize_center", &Ea::synchronize_center, "parameters"_a)
      .def("synchronize_parameters", &Ea::synchronize_parameters, "parameters"_a)
      .def("resume", &Ea::resume, "session"_a, "parameters"_a)
      .def("declare_state", &Ea::declare_state);
  bind_async_policy(module);
  bind_elastic_policy(module);
  bind_partial(module);
}

}  // namespace ropewalk::python

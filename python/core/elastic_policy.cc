// Asynchronous elastic averaging whose members come and go.
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "invalid.h"
#include "policies.h"
#include "ropewalk/elastic_async_ea.h"
#include "seconds.h"
#include "session.h"

namespace ropewalk::python {
namespace {

constexpr const char* kElasticPolicyName = "ElasticAsyncEA";

using AnyElasticEa = PolicyVariant<ElasticAsyncEa>;

/// The session has it leave before it ends itself. Call without the GIL.
class ElasticTask final : public Task {
 public:
  ElasticTask(AnyElasticEa policy, DataType type) : type_(type), policy_(std::move(policy)) {}

  DataType type() const { return type_; }
  void settle() noexcept override {
    std::lock_guard lock(mutex_);
    std::visit([](auto& policy) { policy->leave(); }, policy_);
  }
  /// Without the lock, which a thread may hold that waits for other ranks.
  void abandon(const std::string& reason) noexcept override {
    std::visit([&](auto& policy) { policy->abort(reason); }, policy_);
  }

  /// Calls `action(policy, tensors)`.
  template <class Action>
  auto apply(const std::vector<Array>& arrays, Action action) {
    std::lock_guard lock(mutex_);
    return std::visit(
        [&]<class T>(const std::unique_ptr<ElasticAsyncEa<T>>& policy) {
          const auto tensors = spans_of<T>(arrays);
          return action(*policy, TensorList<T>(tensors));
        },
        policy_);
  }
  uint64_t steps() const {
    return std::visit([](const auto& policy) { return policy->steps(); }, policy_);
  }
  Membership membership() const {
    return std::visit([](const auto& policy) { return policy->membership(); }, policy_);
  }

 private:
  const DataType type_;
  const AnyElasticEa policy_;  // never null
  std::mutex mutex_;           // one call at a time, except for those of any thread
};

/// The session's communicator lives as long as the session.
AnyElasticEa make(const std::shared_ptr<Session>& session, const std::vector<Array>& arrays,
                  int tau, double alpha, std::chrono::nanoseconds timeout, bool has_state) {
  const std::shared_ptr<Communicator> comm(session, &session->open());
  return visit_type(arrays[0].type, [&]<class T>(std::type_identity<T>) -> AnyElasticEa {
    if constexpr (!std::is_integral_v<T>) {
      const auto tensors = spans_of<T>(arrays);
      return std::make_unique<ElasticAsyncEa<T>>(comm, tau, alpha, TensorList<T>(tensors), timeout,
                                                 has_state);
    }
    reject(kElasticPolicyName, "the arrays hold integers", floating_types_advice());
  });
}

class ElasticPolicy {
 private:
  std::vector<Array> view(const nb::sequence& list) const {
    std::vector<Array> arrays = view_list(list, kElasticPolicyName, "parameters");
    session_->require_own_process();
    if (task_ && arrays[0].type != task_->type())
      reject(kElasticPolicyName, "parameters[0] has another dtype than at first",
             "give it the same arrays in every call");
    return arrays;
  }
  template <class Action>
  auto apply(const nb::sequence& list, Action action) {
    const std::vector<Array> arrays = view(list);
    nb::gil_scoped_release unlocked;
    return task_->apply(arrays, action);
  }

 public:
  ElasticPolicy(std::shared_ptr<Session> session, const nb::sequence& list, int tau, double alpha,
                double timeout, bool has_state)
      : session_(std::move(session)) {
    const std::vector<Array> arrays = view(list);
    const auto limit = nanoseconds_of(timeout);
    nb::gil_scoped_release unlocked;
    task_ = std::make_shared<ElasticTask>(make(session_, arrays, tau, alpha, *limit, has_state),
                                          arrays[0].type);
    session_->settle_at_close(task_);
  }
  ElasticPolicy(const ElasticPolicy&) = delete;
  ElasticPolicy& operator=(const ElasticPolicy&) = delete;
  ~ElasticPolicy() {
    if (task_) end_task(*session_, task_);
  }

  bool average_parameters(const nb::sequence& list) {
    return apply(list,
                 [](auto& policy, auto tensors) { return policy.average_parameters(tensors); });
  }
  void finish(const nb::sequence& list) {
    apply(list, [](auto& policy, auto tensors) { policy.finish(tensors); });
  }
  uint64_t steps() const { return task_->steps(); }
  int epoch() const { return task_->membership().epoch; }
  int rank() const { return task_->membership().rank; }
  int size() const { return task_->membership().size; }
  void leave() { settle_task(*session_, *task_); }
  void abandon() { abandon_task(*session_, *task_, "ElasticAsyncEA"); }

 private:
  std::shared_ptr<Session> session_;  // first: goes last
  std::shared_ptr<ElasticTask> task_;
};

}  // namespace

void bind_elastic_policy(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<ElasticPolicy>(module, "ElasticAsyncEa")
      .def(nb::init<std::shared_ptr<Session>, const nb::sequence&, int, double, double, bool>(),
           "session"_a, "parameters"_a, "tau"_a, "alpha"_a, "timeout"_a, "has_state"_a)
      .def("average_parameters", &ElasticPolicy::average_parameters, "parameters"_a)
      .def("finish", &ElasticPolicy::finish, "parameters"_a)
      .def_prop_ro("steps", &ElasticPolicy::steps)
      .def_prop_ro("epoch", &ElasticPolicy::epoch)
      .def_prop_ro("rank", &ElasticPolicy::rank)
      .def_prop_ro("size", &ElasticPolicy::size)
      .def("leave", &ElasticPolicy::leave)
      .def("abandon", &ElasticPolicy::abandon);
}

}  // namespace ropewalk::python

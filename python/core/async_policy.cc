// Asynchronous elastic averaging. Its start is collective, so it cannot wait for a first list that
// tells the type: it is told.
#include <fmt/format.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <mutex>
#include <variant>

#include "invalid.h"
#include "policies.h"
#include "ropewalk/policies.h"
#include "session.h"

namespace ropewalk::python {
namespace {

constexpr const char* kName = "AsyncEA";

using AnyAsyncEa = PolicyVariant<AsyncEa>;

/// The session has it leave before it leaves the job itself. Call without the GIL.
class AsyncTask final : public Task {
 public:
  AsyncTask(AnyAsyncEa policy, DataType type) : type_(type), policy_(std::move(policy)) {}

  DataType type() const { return type_; }
  void settle() noexcept override {
    std::lock_guard lock(mutex_);
    closed_ = true;
    std::visit([](auto& policy) { policy->leave(); }, policy_);
  }
  bool outlives_epoch() const noexcept override { return true; }
  /// Without the lock, which a thread may hold that waits for other ranks.
  void abandon(const std::string& reason) noexcept override {
    std::visit([&](auto& policy) { policy->abort(reason); }, policy_);
  }

  /// Calls `action(policy, tensors)`.
  template <class Action>
  auto apply(const std::vector<Array>& arrays, Action action) {
    std::lock_guard lock(mutex_);
    return std::visit(
        [&]<class T>(const std::unique_ptr<AsyncEa<T>>& policy) {
          if (closed_)
            reject(kName, "it is closed", "call it before close(), or inside the with block");
          const auto tensors = spans_of<T>(arrays);
          return action(*policy, TensorList<T>(tensors));
        },
        policy_);
  }

 private:
  const DataType type_;
  const AnyAsyncEa policy_;  // never null
  std::mutex mutex_;         // one call of the policy at a time, except for abort; guards closed_
  bool closed_ = false;
};

AnyAsyncEa make(Session& session, DataType type, int tau, double alpha,
                const AsyncEaOptions& options) {
  return visit_type(type, [&]<class T>(std::type_identity<T>) -> AnyAsyncEa {
    if constexpr (!std::is_integral_v<T>)
      return std::make_unique<AsyncEa<T>>(session.open(), tau, alpha, options);
    reject(kName, fmt::format("dtype is {}", name_of(type)), floating_types_advice());
  });
}

class AsyncPolicy {
 private:
  std::vector<Array> view(const nb::sequence& list, const char* argument) const {
    std::vector<Array> arrays = view_list(list, kName, argument);
    session_->require_own_process();
    if (arrays[0].type != task_->type())
      reject(kName,
             fmt::format("{}[0] has dtype {}, not {}", argument, name_of(arrays[0].type),
                         name_of(task_->type())),
             "give the policy the arrays' dtype");
    return arrays;
  }
  template <class Action>
  auto apply(const nb::sequence& list, const char* argument, Action action) {
    const std::vector<Array> arrays = view(list, argument);
    nb::gil_scoped_release unlocked;
    return task_->apply(arrays, action);
  }

 public:
  AsyncPolicy(std::shared_ptr<Session> session, const std::string& dtype, int tau, double alpha,
              int servers, bool replicated)
      : session_(std::move(session)) {
    const auto type = data_type_named(dtype);
    if (!type) reject(kName, fmt::format("dtype is {}", dtype), floating_types_advice());
    nb::gil_scoped_release unlocked;
    task_ = std::make_shared<AsyncTask>(make(*session_, *type, tau, alpha, {servers, replicated}),
                                        *type);
    session_->settle_at_close(task_);
  }
  AsyncPolicy(const AsyncPolicy&) = delete;
  AsyncPolicy& operator=(const AsyncPolicy&) = delete;
  ~AsyncPolicy() {
    if (session_->is_forked()) {
      ropewalk::abandon(std::move(task_));
      return;
    }
    nb::gil_scoped_release unlocked;
    task_.reset();
  }

  bool average_parameters(const nb::sequence& list) {
    return apply(list, "parameters",
                 [](auto& policy, auto tensors) { return policy.average_parameters(tensors); });
  }
  void synchronize_center(const nb::sequence& list) {
    apply(list, "parameters",
          [](auto& policy, auto tensors) { policy.synchronize_center(tensors); });
  }
  void synchronize_parameters(const nb::sequence& list) {
    apply(list, "parameters",
          [](auto& policy, auto tensors) { policy.synchronize_parameters(tensors); });
  }
  void center(const nb::sequence& list) {
    apply(list, "center", [](auto& policy, auto tensors) { policy.center(tensors); });
  }
  void serve() {
    session_->require_own_process();
    nb::gil_scoped_release unlocked;
    task_->apply({}, [](auto& policy, auto) { policy.serve(); });
  }
  /// Goes on with `next`. Servers give no arrays.
  size_t resume(std::shared_ptr<Session> next, const nb::sequence& list) {
    std::vector<Array> arrays;
    if (nb::len(list) > 0) arrays = view(list, "parameters");
    Communicator& comm = next->open();
    nb::gil_scoped_release unlocked;
    next->settle_at_close(task_);
    const size_t elements = task_->apply(
        arrays, [&](auto& policy, auto tensors) { return policy.resume(comm, tensors); });
    session_.swap(next);
    return elements;
  }
  void declare_state() {
    session_->require_own_process();
    nb::gil_scoped_release unlocked;
    task_->apply({}, [](auto& policy, auto) { policy.declare_state(); });
  }
  void close() { settle_task(*session_, *task_); }
  void abandon() { abandon_task(*session_, *task_, "AsyncEA"); }

 private:
  std::shared_ptr<Session> session_;  // first: goes last
  std::shared_ptr<AsyncTask> task_;
};

}  // namespace

void bind_async_policy(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<AsyncPolicy>(module, "AsyncEa")
      .def(nb::init<std::shared_ptr<Session>, const std::string&, int, double, int, bool>(),
           "session"_a, "dtype"_a, "tau"_a, "alpha"_a, "servers"_a, "replicated"_a)
      .def("average_parameters", &AsyncPolicy::average_parameters, "parameters"_a)
      .def("synchronize_center", &AsyncPolicy::synchronize_center, "parameters"_a)
      .def("synchronize_parameters", &AsyncPolicy::synchronize_parameters, "parameters"_a)
      .def("center", &AsyncPolicy::center, "center"_a)
      .def("serve", &AsyncPolicy::serve)
      .def("resume", &AsyncPolicy::resume, "session"_a, "parameters"_a)
      .def("declare_state", &AsyncPolicy::declare_state)
      .def("close", &AsyncPolicy::close)
      .def("abandon", &AsyncPolicy::abandon);
}

}  // namespace ropewalk::python

// Partial all_reduces of arrays.
#include "ropewalk/partial.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "array.h"
#include "invalid.h"
#include "policies.h"
#include "session.h"

namespace ropewalk::python {
namespace {

constexpr const char* kPartialName = "PartialAllReduce";

/// The session has it leave before it leaves the job itself. Call without the GIL.
class PartialTask final : public Task {
 public:
  PartialTask(Communicator& comm, size_t count, DataType type) : reducer_(comm, count, type) {}

  void settle() noexcept override {
    std::lock_guard lock(mutex_);
    reducer_.leave();
  }
  /// Without the lock, which a thread may hold that waits for other ranks.
  void abandon(const std::string& reason) noexcept override { reducer_.abort(reason); }

  /// Calls `action(reducer)`.
  template <class Action>
  PartialSum apply(Action action) {
    std::lock_guard lock(mutex_);
    return action(reducer_);
  }

 private:
  ropewalk::internal::PartialReducer reducer_;
  std::mutex mutex_;  // one call at a time, except for abort
};

class Partial {
 public:
  Partial(std::shared_ptr<Session> session, size_t count, const std::string& dtype)
      : session_(std::move(session)) {
    const auto type = data_type_named(dtype);
    if (!type)
      reject(kPartialName, fmt::format("dtype is {}", dtype),
             fmt::format("use one of {}", fmt::join(names<DataType>(kDataTypes), ", ")));
    type_ = *type;
    Communicator& comm = session_->open();
    nb::gil_scoped_release unlocked;
    task_ = std::make_shared<PartialTask>(comm, count, type_);
    session_->settle_at_close(task_);
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  ~Partial() {
    if (session_->is_forked()) {
      ropewalk::abandon(std::move(task_));
      return;
    }
    nb::gil_scoped_release unlocked;
    task_.reset();
  }

  PartialSum all_reduce(nb::handle x, double patience) {
    const Array array = view(x);
    // Any longer is for ever; not a number is nothing.
    constexpr double kLong_s = 1e9;
    const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(patience > 0 ? std::min(patience, kLong_s) : 0));
    nb::gil_scoped_release unlocked;
    return task_->apply(
        [&](auto& reducer) { return reducer.all_reduce(array.data, array.count, limit); });
  }
  PartialSum finish(nb::handle x) {
    const Array array = view(x);
    nb::gil_scoped_release unlocked;
    return task_->apply([&](auto& reducer) { return reducer.finish(array.data, array.count); });
  }
  void close() { settle_task(*session_, *task_); }
  void abandon() { abandon_task(*session_, *task_, "PartialAllReduce"); }

 private:
  Array view(nb::handle x) const {
    session_->require_own_process();
    Array array = view_array(x, kPartialName, "x", Access::write);
    if (array.type != type_)
      reject(kPartialName,
             fmt::format("x has dtype {}, not {}", name_of(array.type), name_of(type_)),
             "make it with the arrays' dtype");
    return array;
  }

  std::shared_ptr<Session> session_;  // first: goes last
  DataType type_ = {};
  std::shared_ptr<PartialTask> task_;
};

}  // namespace

void bind_partial(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<PartialSum>(module, "PartialSum")
      .def_ro("contributions", &PartialSum::contributions)
      .def_ro("rounds", &PartialSum::rounds)
      .def_prop_ro("total", &PartialSum::total);
  nb::class_<Partial>(module, "Partial")
      .def(nb::init<std::shared_ptr<Session>, size_t, const std::string&>(), "session"_a, "count"_a,
           "dtype"_a)
      .def("all_reduce", &Partial::all_reduce, "x"_a, "patience"_a)
      .def("finish", &Partial::finish, "x"_a)
      .def("close", &Partial::close)
      .def("abandon", &Partial::abandon);
}

}  // namespace ropewalk::python

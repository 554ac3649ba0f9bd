// ropewalk._core: what Python needs of C++, called by the package's own modules only.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "errors.h"
#include "invalid.h"
#include "joining.h"
#include "lightgbm.h"
#include "policies.h"
#include "seconds.h"
#include "session.h"
#include "state_sync.h"
#include "system_exit.h"
#include "work.h"

namespace ropewalk::python {
namespace {

using namespace nb::literals;
using SessionPointer = std::shared_ptr<Session>;

SessionPointer join(std::optional<int> rank, std::optional<int> size,
                    std::optional<std::string> coordinator, std::optional<int> coordinator_fd,
                    std::optional<std::string> key, std::optional<std::string> transport,
                    std::optional<bool> secure, std::optional<double> timeout,
                    std::optional<bool> progress_thread, std::optional<int> progress_cpu,
                    std::optional<double> join_timeout, std::optional<bool> elastic,
                    std::optional<bool> join_running, std::optional<bool> tie_breaker,
                    std::optional<int> quorum_min, std::optional<double> admission_timeout,
                    const nb::object& stop) {
  Options options{rank,
                  size,
                  std::move(coordinator),
                  coordinator_fd,
                  std::move(key),
                  std::move(transport),
                  secure,
                  nanoseconds_of(timeout),
                  progress_thread,
                  progress_cpu,
                  nanoseconds_of(join_timeout),
                  elastic,
                  join_running,
                  tie_breaker,
                  quorum_min,
                  nanoseconds_of(admission_timeout),
                  {}};
  return join_job(std::move(options), stop);
}

PreparedCall prepare(Session& session, std::string collective, nb::object x, nb::object out,
                     std::string op, double scale, int root,
                     std::optional<std::vector<size_t>> counts,
                     std::optional<std::vector<size_t>> recv_counts,
                     std::optional<std::string> algorithm) {
  session.open();
  return prepare_call(session, {std::move(collective), std::move(x), std::move(out), std::move(op),
                                scale, root, counts.value_or(std::vector<size_t>()),
                                recv_counts.value_or(std::vector<size_t>()), std::move(algorithm)});
}

SessionPointer create_group(Session& session, const std::vector<int>& ranks,
                            const nb::callable& exchange, std::optional<double> timeout) {
  const auto limit = nanoseconds_of(timeout);
  const auto call = [&exchange](const std::string& own) {
    const nb::gil_scoped_acquire locked;
    return nb::cast<std::vector<std::string>>(exchange(own));
  };
  nb::gil_scoped_release unlocked;
  return session.create_group(ranks, call, limit);
}

SessionPointer shrink(Session& session, std::optional<double> timeout) {
  const auto limit = nanoseconds_of(timeout);
  nb::gil_scoped_release unlocked;
  return session.shrink(limit);
}

void depart(Session& session, std::optional<double> timeout) {
  const auto limit = nanoseconds_of(timeout);
  nb::gil_scoped_release unlocked;
  session.depart(limit);
}

SessionPointer grow(Session& session, std::optional<double> timeout) {
  const auto limit = nanoseconds_of(timeout);
  nb::gil_scoped_release unlocked;
  return session.grow(limit);
}

std::pair<uint64_t, std::vector<int>> agree(Session& session, uint64_t bits,
                                            std::optional<double> timeout) {
  const auto limit = nanoseconds_of(timeout);
  nb::gil_scoped_release unlocked;
  const Agreed agreed = session.agree(bits, limit);
  return {agreed.bits, agreed.ranks};
}

void run(Session& session, const PreparedCall& prepared) {
  Communicator& communicator = session.open();
  nb::gil_scoped_release unlocked;
  communicator.run(prepared.call);
}

void run_committed(Session& session, const PreparedCall& prepared, std::optional<double> timeout) {
  const auto limit = nanoseconds_of(timeout);
  Communicator& communicator = session.open();
  nb::gil_scoped_release unlocked;
  communicator.run_committed(prepared.call, limit);
}

std::unique_ptr<StartedWork> start(SessionPointer session, std::vector<PreparedCall> prepared) {
  std::vector<Call> calls;
  for (const PreparedCall& one : prepared) calls.push_back(one.call);
  Communicator& communicator = session->open();
  Work work;
  {
    nb::gil_scoped_release unlocked;
    work = communicator.start_group(calls);
  }
  return std::make_unique<StartedWork>(std::move(session), std::move(prepared), std::move(work));
}

std::unique_ptr<RepeatedPlan> plan(SessionPointer session, const PreparedCall& prepared) {
  Communicator& communicator = session->open();
  Plan plan;
  {
    nb::gil_scoped_release unlocked;
    plan = communicator.plan(prepared.call);
  }
  return std::make_unique<RepeatedPlan>(std::move(session), prepared, std::move(plan));
}

/// Registered memory and the session that it must not outlive.
struct OwnedBuffer {
  SessionPointer session;  // first: goes last
  Buffer<std::byte> buffer;
};

/// A numpy array, or where numpy lacks the type, as bfloat16, an object that has DLPack.
nb::object allocate(SessionPointer session, const std::vector<size_t>& shape,
                    const std::string& dtype) {
  const auto type = data_type_named(dtype);
  const auto element = type ? dlpack_type(*type) : std::nullopt;
  if (!element)
    reject("allocate", fmt::format("dtype is {}", dtype),
           fmt::format("use one of {}", fmt::join(names<DataType>(kDataTypes), ", ")));
  size_t bytes = size_of(*type);
  for (const size_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      reject("allocate", "the shape has more bytes than fit in 64 bits", "ask for less");
  Communicator& communicator = session->open();
  auto owned = std::make_unique<OwnedBuffer>(session);
  {
    nb::gil_scoped_release unlocked;
    owned->buffer = communicator.allocate<std::byte>(bytes);
  }
  std::byte* data = owned->buffer.data();
  nb::capsule owner(owned.release(), [](void* pointer) noexcept {
    auto* buffer = static_cast<OwnedBuffer*>(pointer);
    if (!buffer->session->is_forked()) delete buffer;
  });
  nb::ndarray<> array(data, shape.size(), shape.data(), owner, nullptr, *element);
  return numpy_has(*element) ? nb::cast(nb::ndarray<nb::numpy>(array)) : nb::cast(array);
}

/// The file of the libropewalk that this process runs.
std::string library_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&Communicator::create), &info) == 0)
    throw Error(ErrorCode::system, "get_library", "the loader does not know where it is");
  return info.dli_fname;
}

void bind_session(nb::module_& module) {
  module.def("join", &join, "rank"_a, "size"_a, "coordinator"_a, "coordinator_fd"_a, "key"_a,
             "transport"_a, "secure"_a, "timeout"_a, "progress_thread"_a, "progress_cpu"_a,
             "join_timeout"_a, "elastic"_a, "join_running"_a, "tie_breaker"_a, "quorum_min"_a,
             "admission_timeout"_a, "stop"_a.none());
  nb::class_<Session>(module, "Session")
      .def_ro("rank", &Session::rank)
      .def_ro("size", &Session::size)
      .def_ro("local_rank", &Session::local_rank)
      .def_ro("local_size", &Session::local_size)
      .def_ro("transport", &Session::transport)
      .def_prop_ro("closed", &Session::is_closed)
      .def_prop_ro("forked", &Session::is_forked)
      .def("prepare", &prepare, "collective"_a, "x"_a.none(), "out"_a.none(), "op"_a, "scale"_a,
           "root"_a, "counts"_a, "recv_counts"_a, "algorithm"_a)
      .def("run", &run, "call"_a)
      .def("run_committed", &run_committed, "call"_a, "timeout"_a = nb::none())
      .def("start", &start, "calls"_a)
      .def("plan", &plan, "call"_a)
      .def("allocate", &allocate, "shape"_a, "dtype"_a)
      .def(
          "barrier", [](Session& session) { session.open().barrier(); },
          nb::call_guard<nb::gil_scoped_release>())
      .def("abort", &Session::abort, "reason"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("create_group", create_group, "ranks"_a, "exchange"_a, "timeout"_a = nb::none())
      .def("split", &Session::split, "color"_a, "key"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("revoke", &Session::revoke, "reason"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("shrink", &shrink, "timeout"_a = nb::none())
      .def("grow", &grow, "timeout"_a = nb::none())
      .def("depart", &depart, "timeout"_a = nb::none())
      .def("pending", &Session::pending)
      .def("agree", &agree, "bits"_a, "timeout"_a = nb::none())
      .def_prop_ro("epoch", [](const Session& session) { return session.epoch(); })
      .def("culprit_process", &Session::culprit_process)
      .def("close", &Session::close, nb::call_guard<nb::gil_scoped_release>());
}

void bind_epochs(nb::module_& module) {
  nb::class_<Departure>(module, "Departure")
      .def_ro("rank", &Departure::rank)
      .def_ro("pid", &Departure::pid)
      .def_ro("host_name", &Departure::host_name)
      .def_ro("has_ended", &Departure::has_ended);
  nb::class_<Epoch>(module, "Epoch")
      .def_ro("number", &Epoch::number)
      .def_ro("former_ranks", &Epoch::former_ranks)
      .def_ro("departures", &Epoch::departures)
      .def_ro("reason", &Epoch::reason)
      .def_prop_ro("change_time",
                   [](const Epoch& epoch) {
                     return std::chrono::duration<double>(epoch.change_time).count();
                   })
      .def_ro("keeps_connections", &Epoch::keeps_connections);
}

void bind_tasks(nb::module_& module) {
  nb::class_<PreparedCall>(module, "Call");
  nb::class_<StartedWork>(module, "Work")
      .def("test", &StartedWork::test)
      .def("wait", &StartedWork::wait, "timeout"_a)
      .def("on_done", &StartedWork::on_done, "callback"_a, "timeout"_a);
  nb::class_<RepeatedPlan>(module, "Plan")
      .def("run", &RepeatedPlan::run)
      .def("start", &RepeatedPlan::start)
      .def("test", &RepeatedPlan::test)
      .def("wait", &RepeatedPlan::wait, "timeout"_a)
      .def_prop_ro("algorithm", &RepeatedPlan::algorithm);
}

}  // namespace
}  // namespace ropewalk::python

NB_MODULE(_core, module) {
  using namespace ropewalk::python;
  register_errors();
  nb::set_leak_warnings(false);  // a traceback may hold a communicator until the process ends
  module.attr("__version__") = ROPEWALK_VERSION;
  module.def("algorithms", [] { return names<ropewalk::Algorithm>(ropewalk::kAlgorithms); });
  module.def("data_types", [] { return names<ropewalk::DataType>(ropewalk::kDataTypes); });
  module.def("library_path", &library_path);
  module.def("on_system_exit", &on_system_exit, "callback"_a);
  bind_epochs(module);
  bind_session(module);
  bind_tasks(module);
  bind_state_sync(module);
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function(&end_callbacks, nb::call_guard<nb::gil_scoped_release>()));
  bind_policies(module);
  bind_lightgbm(module);
}

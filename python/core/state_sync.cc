#include "state_sync.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "array.h"
#include "invalid.h"
#include "seconds.h"
#include "session.h"

namespace ropewalk::python {
namespace {

using namespace nb::literals;

constexpr const char* kSyncState = "sync_state";

using NamedArrays = std::vector<std::pair<std::string, nb::object>>;

/// The caller's arrays, kept alive and in place.
struct StateArrays {
  explicit StateArrays(const NamedArrays& named) {
    arrays.reserve(named.size());
    for (const auto& [name, object] : named) {
      const Array& array = arrays.emplace_back(view_array(object, kSyncState, name, Access::write));
      buffers.emplace_back(
          name, std::span(static_cast<std::byte*>(array.data), array.count * size_of(array.type)));
    }
  }

  std::vector<Array> arrays;
  std::vector<NamedBuffer> buffers;
};

/// "newest", "majority", or a rank.
StateSource source_of(const nb::object& source) {
  if (nb::isinstance<nb::int_>(source)) return StateSource::from(nb::cast<int>(source));
  const std::string word = nb::cast<std::string>(nb::str(source));
  if (word == "majority") return StateSource::majority();
  if (word != "newest")
    reject(kSyncState, "source is \"" + word + "\"", "use \"newest\", \"majority\", or a rank");
  return StateSource::newest();
}

struct SyncTask final : Task {
  explicit SyncTask(StateSync started) : sync(std::move(started)) {}
  void settle() noexcept override {
    std::lock_guard lock(mutex);
    try {
      sync.wait();
    } catch (const Error&) {  // whoever waits is told again
    }
  }

  StateSync sync;
  std::mutex mutex;  // guards it
};

/// Thread-safe by the GIL, which is let go while it waits.
class StartedSync {
 public:
  StartedSync(std::shared_ptr<Session> session, StateArrays arrays, StateSync sync)
      : session_(std::move(session)),
        arrays_(std::move(arrays)),
        task_(std::make_shared<SyncTask>(std::move(sync))) {
    session_->settle_at_close(task_);
  }
  StartedSync(const StartedSync&) = delete;
  StartedSync& operator=(const StartedSync&) = delete;
  /// Waits for the end: only then may the arrays go.
  ~StartedSync() { end_task(*session_, task_); }

  bool done() {
    session_->require_own_process();
    nb::gil_scoped_release unlocked;
    std::lock_guard lock(task_->mutex);
    return task_->sync.done();
  }
  StateReport wait(std::optional<double> seconds) {
    session_->require_own_process();
    const auto timeout = nanoseconds_of(seconds);
    nb::gil_scoped_release unlocked;
    std::lock_guard lock(task_->mutex);
    return task_->sync.wait(timeout);
  }

 private:
  std::shared_ptr<Session> session_;  // first: goes last
  StateArrays arrays_;
  std::shared_ptr<SyncTask> task_;
};

std::unique_ptr<StartedSync> start_sync_state(std::shared_ptr<Session> session,
                                              const NamedArrays& named, uint64_t revision,
                                              const nb::object& source) {
  StateArrays arrays(named);
  const StateSource from = source_of(source);
  Communicator& communicator = session->open();
  std::optional<StateSync> sync;
  {
    nb::gil_scoped_release unlocked;
    sync = communicator.start_sync_state(arrays.buffers, revision, from);
  }
  return std::make_unique<StartedSync>(std::move(session), std::move(arrays), std::move(*sync));
}

StateReport sync_state(Session& session, const NamedArrays& named, uint64_t revision,
                       const nb::object& source, std::optional<double> seconds) {
  const StateArrays arrays(named);
  const StateSource from = source_of(source);
  const auto timeout = nanoseconds_of(seconds);
  Communicator& communicator = session.open();
  nb::gil_scoped_release unlocked;
  return communicator.sync_state(arrays.buffers, revision, from, timeout);
}

}  // namespace

void bind_state_sync(nb::module_& module) {
  nb::class_<StateReport>(module, "StateReport")
      .def_ro("revision", &StateReport::revision)
      .def_ro("hash", &StateReport::hash)
      .def_ro("sources", &StateReport::sources)
      .def_ro("changed", &StateReport::changed)
      .def_ro("bytes_received", &StateReport::bytes_received)
      .def_ro("bytes_sent", &StateReport::bytes_sent);
  nb::class_<StartedSync>(module, "StateSync")
      .def("done", &StartedSync::done)
      .def("wait", &StartedSync::wait, "timeout"_a = nb::none());
  module.def("start_sync_state", &start_sync_state, "session"_a, "buffers"_a, "revision"_a,
             "source"_a);
  module.def("sync_state", &sync_state, "session"_a, "buffers"_a, "revision"_a, "source"_a,
             "timeout"_a);
}

}  // namespace ropewalk::python

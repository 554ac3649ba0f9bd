#include "joining.h"

#include <chrono>
#include <future>
#include <stop_token>
#include <utility>

namespace ropewalk::python {
namespace {

namespace nb = nanobind;

constexpr auto kLookInterval = std::chrono::milliseconds(100);

bool is_over(const std::future<std::unique_ptr<Communicator>>& joined,
             std::chrono::milliseconds limit) {
  nb::gil_scoped_release unlocked;
  return joined.wait_for(limit) == std::future_status::ready;
}

bool is_main_thread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

bool is_set(const nb::object& stop) {
  return !stop.is_none() && nb::cast<bool>(stop.attr("is_set")());
}

}  // namespace

std::shared_ptr<Session> join_job(Options options, const nb::object& stop) {
  std::stop_source source;
  options.stop = source.get_token();
  auto joined =
      std::async(std::launch::async, [&options] { return Communicator::create(options); });
  try {
    // Another thread hears no signals. It does not come back for the GIL now and then either: where
    // the interpreter ends meanwhile that would end the process.
    const bool looks = !stop.is_none() || is_main_thread();
    while (looks && !is_over(joined, kLookInterval)) {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (is_set(stop)) source.request_stop();
    }
    if (!looks) {
      nb::gil_scoped_release unlocked;
      joined.wait();
    }
  } catch (...) {
    source.request_stop();
    nb::gil_scoped_release unlocked;
    try {
      joined.get();  // leaves, where it had just joined
    } catch (const Error&) {
    }
    throw;
  }
  return std::make_shared<Session>(joined.get());
}

}  // namespace ropewalk::python

#include "errors.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "ropewalk/status.h"

namespace ropewalk::python {
namespace {

namespace nb = nanobind;

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const Failure& failure = error.failure();
    try {
      const nb::object raised =
          nb::module_::import_("ropewalk.errors")
              .attr("from_failure")(std::string(name_of(failure.code)), error.what(), failure.rank,
                                    failure.peer, failure.operation, failure.reason,
                                    failure.advice);
      PyErr_SetObject(raised.type().ptr(), raised.ptr());
    } catch (nb::python_error& while_raising) {
      while_raising.restore();
    }
  }
}

}  // namespace

void register_errors() {
  nb::register_exception_translator(translate);
}

}  // namespace ropewalk::python

#include "errors.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace ropewalk::python {

nb::object python_error_of(const Error& error) {
  const Failure& failure = error.failure();
  return nb::module_::import_("ropewalk.errors")
      .attr("from_failure")(std::string(name_of(failure.code)), error.what(), failure.rank,
                            failure.peers, failure.operation, failure.reason, failure.advice);
}

namespace {

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    try {
      const nb::object raised = python_error_of(error);
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

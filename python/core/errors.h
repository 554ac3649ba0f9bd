// C++ errors become the classes of ropewalk/errors.py.
#pragma once

#include <nanobind/nanobind.h>

#include "ropewalk/status.h"

namespace ropewalk::python {

namespace nb = nanobind;

/// An object of the class that `error` is raised as.
nb::object python_error_of(const Error& error);

void register_errors();

}  // namespace ropewalk::python

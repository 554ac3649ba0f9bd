// Tells that SystemExit is about to end the program.
#pragma once

#include <nanobind/nanobind.h>

namespace ropewalk::python {

/// Calls `callback` with the exception, and no Python code below it. Once in a process.
void on_system_exit(nanobind::callable callback);

}  // namespace ropewalk::python

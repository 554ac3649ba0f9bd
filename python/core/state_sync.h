// Communicator::sync_state over named arrays.
#pragma once

#include <nanobind/nanobind.h>

namespace ropewalk::python {

void bind_state_sync(nanobind::module_& module);

}  // namespace ropewalk::python

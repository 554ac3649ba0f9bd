#pragma once

#include <nanobind/nanobind.h>

namespace ropewalk::python {

namespace nb = nanobind;

void bind_lightgbm(nb::module_& module);

}  // namespace ropewalk::python

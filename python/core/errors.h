// C++ errors become the classes of ropewalk/errors.py.
#pragma once

namespace ropewalk::python {

void register_errors();

}  // namespace ropewalk::python

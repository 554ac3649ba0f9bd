// A rw_call, checked, as a Call.
#pragma once

#include "c/handles.h"

namespace ropewalk::c {

Call call_of(const Communicator& comm, const rw_call& given);
DataType type_of(int type);

}  // namespace ropewalk::c

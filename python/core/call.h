// A Call made of Python's arguments, checked, with the arrays that it needs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "ropewalk/communicator.h"
#include "session.h"

namespace ropewalk::python {

/// What a collective's method was given. Absent arrays are None.
struct CallArguments {
  std::string collective;
  nb::object x, out;
  std::string op;
  double scale = 1;
  int root = 0;
  std::vector<size_t> counts, recv_counts;  // empty, or one for each rank
  std::optional<std::string> algorithm;
};

struct PreparedCall {
  Call call;
  std::vector<Array> arrays;
};

/// Throws Error(invalid_argument) that names the argument at fault; nothing has been sent then.
PreparedCall prepare_call(const Session& session, const CallArguments& arguments);

}  // namespace ropewalk::python

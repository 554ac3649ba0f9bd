// How a wrong argument is told: what was given, and what to do.
#pragma once

#include <string>
#include <utility>

#include "ropewalk/status.h"

namespace ropewalk::python {

[[noreturn]] inline void reject(std::string operation, std::string reason, std::string advice) {
  throw Error(ErrorCode::invalid_argument, std::move(operation), std::move(reason),
              std::move(advice));
}

}  // namespace ropewalk::python

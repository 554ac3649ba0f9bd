// Counts what a thread allocates and frees. Linked in, it is the program's allocator.
#pragma once

#include <functional>
#include <string>

#include "tests/data_path/watchable.h"

namespace ropewalk::testing {

/// Runs `body`, and tells what this thread allocated or freed meanwhile: how often, and of the
/// first time how much and from where. Empty: nothing, or it is not watchable.
std::string allocations_during(const std::function<void()>& body);

}  // namespace ropewalk::testing

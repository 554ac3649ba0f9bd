// Threads of the library's own.
#pragma once

#include <functional>
#include <thread>

namespace ropewalk {

/// Starts `body` on a thread on which the application's signal handlers do not run. `name`, for
/// debuggers: at most 15 letters. Throws Error(exhausted) in the name of `operation`.
std::thread start_thread(const char* operation, const char* name, std::function<void()> body);

}  // namespace ropewalk

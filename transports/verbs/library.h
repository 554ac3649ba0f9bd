// libibverbs, loaded when it is first needed, so that Ropewalk runs where it is not installed, and
// takes the system's together with the system's drivers. library.cc defines its functions and hands
// calls on; so callers, and the inline functions of its header, call them as ever.
#pragma once

namespace ropewalk::verbs {

/// It stays loaded. To be called before any of its functions. Threads: any. Throws
/// Error(unavailable) that names what could not be loaded.
void load_library();

}  // namespace ropewalk::verbs

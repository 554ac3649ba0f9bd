#pragma once

namespace ropewalk::tools {

/// Set by the build from the project's version.
inline constexpr const char* kVersion = ROPEWALK_VERSION;

}  // namespace ropewalk::tools

// The secret that the ranks of one job share.
#pragma once

#include <string>

namespace ropewalk::tools {

/// ROPEWALK_JOB_KEY, or what is in ROPEWALK_JOB_KEY_FILE; else, where one may be drawn, 32 fresh
/// random bytes in hexadecimal.
std::string job_key(bool may_draw);

}  // namespace ropewalk::tools

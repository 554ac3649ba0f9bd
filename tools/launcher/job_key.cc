#include "tools/launcher/job_key.h"

#include <cstdlib>

#include "bootstrap/auth.h"

namespace ropewalk::tools {

std::string job_key() {
  if (const char* given = getenv("ROPEWALK_JOB_KEY"); given != nullptr && *given != 0) return given;
  bootstrap::start_cryptography();
  return bootstrap::random_secret();
}

}  // namespace ropewalk::tools

#include "tools/launcher/job_key.h"

#include "bootstrap/auth.h"
#include "bootstrap/secret.h"

namespace ropewalk::tools {

std::string job_key(bool may_draw) {
  if (const Secret given = take_job_key(); !given.empty()) return std::string(given.text());
  if (!may_draw) return {};
  bootstrap::start_cryptography();
  return bootstrap::random_secret();
}

}  // namespace ropewalk::tools

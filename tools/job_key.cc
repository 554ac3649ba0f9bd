#include "job_key.h"

#include <sodium.h>

#include <array>
#include <cstdlib>

#include "ropewalk/status.h"

namespace ropewalk::tools {

std::string job_key() {
  if (const char* given = getenv("ROPEWALK_JOB_KEY"); given != nullptr && *given != 0) return given;
  if (sodium_init() < 0) {
    throw Error(ErrorCode::system, "job key", "libsodium found no source of randomness",
                "see that /dev/urandom exists, or set ROPEWALK_JOB_KEY");
  }
  std::array<unsigned char, 32> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  std::array<char, 2 * bytes.size() + 1> hex;
  return sodium_bin2hex(hex.data(), hex.size(), bytes.data(), bytes.size());
}

}  // namespace ropewalk::tools

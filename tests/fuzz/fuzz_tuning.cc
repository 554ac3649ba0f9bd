// Tuning profiles are files of a user; rank 0 sends them to the others. What is read can be
// applied, and written again.
#include <cstdlib>
#include <string_view>

#include "job/tuning.h"
#include "ropewalk/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ropewalk;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const TuningProfile profile = parse_tuning(text);
    const TunedJob job{{"alpha", "alpha", "beta", "beta"}, {0, 0, 1, 1}, "shm+tcp"};
    Costs costs;
    if (why_not_for(profile, job).empty()) apply_tuning(profile, job, costs);
    const std::string written = text_of(profile);
    if (text_of(parse_tuning(written)) != written) abort();
  } catch (const Error&) {
  }
  return 0;
}

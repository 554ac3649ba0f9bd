#include "base/word_hash.h"
#include "schedule/schedule.h"

namespace ropewalk {

uint64_t digest_of(const std::vector<Schedule>& schedules) {
  uint64_t hash = kWordHashStart;
  const auto add = [&hash](auto low, auto high) {
    hash =
        hash_word(hash, static_cast<uint32_t>(low) | uint64_t{static_cast<uint32_t>(high)} << 32);
  };
  for (const Schedule& schedule : schedules) {
    add(schedule.ranks, schedule.rank);
    add(schedule.blocks, schedule.scratch);
    add(schedule.steps.size(), schedule.owners.size());
    for (const Step& step : schedule.steps) {
      add(static_cast<int>(step.op) + 256 * step.lane, step.peer);
      add(step.block, step.from);
    }
    for (const int owner : schedule.owners) add(owner, 0);
  }
  return hash;
}

}  // namespace ropewalk

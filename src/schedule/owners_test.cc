// Where a schedule names owners, the engine lets them do all the work on mapped memory
// (engine/owner_program.h); that is right only if the names mean what schedule.h says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "schedule/test_support.h"

namespace ropewalk {
namespace {

int owner_of(const Schedule& schedule, int block) {
  return schedule.owners[static_cast<size_t>(block)];
}

std::string check(const ScheduleKey& key, const Schedule& schedule) {
  if (schedule.owners.size() != static_cast<size_t>(schedule.blocks) || schedule.scratch != 0)
    return "an owner for each data block, and no scratch";
  std::map<int, std::set<int>> sent;            // by block: to whom
  std::map<int, std::set<int>> blocks_of_peer;  // by owner other than this rank
  for (const Step& step : schedule.steps) {
    const int owner = owner_of(schedule, step.block);
    if (owner != schedule.rank && owner != step.peer) return "a message without its owner";
    if (is_recv(step.op) && owner == schedule.rank && !sent[step.block].empty())
      return "the owner receives after it has sent";
    if (is_send(step.op) && !sent[step.block].insert(step.peer).second) return "sent twice";
    if (owner != schedule.rank) blocks_of_peer[owner].insert(step.block);
  }
  for (const auto& [owner, blocks] : blocks_of_peer)
    if (blocks.size() > 1) return "two blocks with one owner";
  return key.ranks == 1 || !schedule.steps.empty() ? "" : "nothing to do";
}

TEST(Owners, AreAtOneEndOfEveryMessageOfTheirBlocks) {
  std::set<std::pair<Collective, Algorithm>> found;
  for (const ScheduleKey& key : keys_to_verify(2, 17))
    for (const Schedule& schedule : build_all(key)) {
      if (schedule.owners.empty()) continue;
      found.insert({key.collective, key.algorithm});
      ASSERT_EQ(check(key, schedule), "") << describe(key) << ", rank " << schedule.rank;
    }
  EXPECT_EQ(found.size(), 10u);  // direct: eight collectives; scattered: two
}

}  // namespace
}  // namespace ropewalk

#include <gtest/gtest.h>

#include "schedule/exchange_testing.h"
#include "schedule/verify.h"

namespace ropewalk {
namespace {

TEST(Exchange, ABlockComesBackOnlyAfterItWasTaken) {
  for (const ScheduleKey& key : keys_to_verify(2, 17)) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < key.ranks; ++rank) schedules.push_back(build_schedule(key, rank));
    ASSERT_EQ(check_exchange(schedules), "") << describe(key);
  }
}

}  // namespace
}  // namespace ropewalk

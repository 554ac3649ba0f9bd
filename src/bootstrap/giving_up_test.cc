// Ranks that end a world they have joined without having left it.
#include <gtest/gtest.h>

#include "bootstrap/world_testing.h"

namespace ropewalk::bootstrap {
namespace {

TEST(World, GoingWithoutLeaveIsToldToTheOthers) {
  const TestJob job(10);
  expect_no_errors(run_world_ranks(10, [&](int rank) {
    const auto world = job.join(rank);
    if (rank == 1) return;
    const Failure* failure = await_failure(world->monitor());
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->peer, 1);
    EXPECT_NE(failure->reason.find("gave up"), std::string::npos) << failure->text();
  }));
}

// Of ranks that are threads one finds no descriptor left, and the others need to know that.
TEST(World, WhyARankGivesUpIsToldToTheOthers) {
  const TestJob job(10);
  expect_no_errors(run_world_ranks(10, [&](int rank) {
    const auto world = job.join(rank);
    if (rank == 1) {
      world->give_up(Error(ErrorCode::exhausted, "tcp", "too many open files", "ulimit -n"));
      return;
    }
    const Failure* failure = await_failure(world->monitor());
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->code, ErrorCode::peer_lost);  // who is left may go on without it
    EXPECT_EQ(failure->peer, 1);
    EXPECT_NE(failure->reason.find("gave up: too many open files"), std::string::npos)
        << failure->text();
    EXPECT_EQ(failure->advice, "ulimit -n");
  }));
}

}  // namespace
}  // namespace ropewalk::bootstrap

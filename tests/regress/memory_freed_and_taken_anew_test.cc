// A call that equals the last one is not prepared anew; unless its memory has been freed, and other
// memory lies there: peers then refused what came for the memory that was.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/local_world.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class MemoryFreed : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, MemoryFreed, ::testing::ValuesIn(transports_under_test()));

TEST_P(MemoryFreed, AndTakenAnewIsNamedAnew) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::set<const float*> before;  // the ranks, which are threads, may take each other's places
    int again = 0;
    for (int i = 0; i < 10; ++i) {
      auto values = comm.allocate<float>(1 << 20);
      again += before.insert(values.data()).second ? 0 : 1;
      std::ranges::fill(values, static_cast<float>(comm.rank() + i));
      comm.all_reduce(values);
      ASSERT_EQ(std::ranges::count(values, static_cast<float>(1 + 2 * i)), 1 << 20);
    }
    EXPECT_GT(again, 0);
  });
}

}  // namespace
}  // namespace ropewalk::testing

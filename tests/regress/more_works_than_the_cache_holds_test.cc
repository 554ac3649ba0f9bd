// With as many Works held as the cache of operations has room for, the next start got the operation
// before it: that ran twice, and its own not at all.
#include <gtest/gtest.h>

#include "tests/local_world.h"

namespace ropewalk::testing {
namespace {

TEST(Regress, MoreWorksThanTheCacheHolds) {
  run_ranks(2, "shm", [](Communicator& comm) {
    constexpr size_t kWorks = 100;
    std::vector<std::vector<float>> data;
    for (size_t i = 0; i < kWorks; ++i) data.emplace_back(10 + i, static_cast<float>(i));
    std::vector<Work> works;
    for (std::vector<float>& vector : data) {
      Call call;
      call.in = call.out = vector.data();
      call.count = vector.size();
      works.push_back(comm.start(call));
    }
    for (Work& work : works) work.wait();
    for (size_t i = 0; i < kWorks; ++i)
      for (const float value : data[i]) ASSERT_EQ(value, 2 * static_cast<float>(i));
  });
}

}  // namespace
}  // namespace ropewalk::testing

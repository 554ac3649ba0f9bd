#include "base/descriptors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace ropewalk {
namespace {

/// As the kernel tells it.
int table_size() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int size = 0; word == "FDSize:" && status >> size) return size;
  return -1;
}

TEST(DescriptorsTest, TheTableHoldsAsManyAsWereReserved) {
  const int before = table_size();
  ASSERT_GT(before, 0);
  reserve_descriptors(before + 1);
  EXPECT_GT(table_size(), before);
}

TEST(DescriptorsTest, BeyondTheLimitAsManyAreReservedAsItAllows) {
  const int before = table_size();
  const rlimit limits = descriptor_limits();
  rlimit lower = limits;
  lower.rlim_cur = std::min(limits.rlim_cur, static_cast<rlim_t>(before) * 4);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  reserve_descriptors(1 << 30);
  EXPECT_EQ(table_size(), static_cast<int>(lower.rlim_cur));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limits), 0);
}

}  // namespace
}  // namespace ropewalk

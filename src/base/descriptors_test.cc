#include "base/descriptors.h"

#include <gtest/gtest.h>

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

TEST(DescriptorsTest, NothingIsReservedBeyondTheLimit) {
  const int before = table_size();
  reserve_descriptors(1 << 30);
  EXPECT_EQ(table_size(), before);
}

}  // namespace
}  // namespace ropewalk

#include "topology/cpu_share.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

using Lists = std::vector<std::vector<int>>;

TEST(CpuShare, ListsAreWrittenAsTheKernelWritesThem) {
  EXPECT_EQ(cpu_list_text({}), "");
  EXPECT_EQ(cpu_list_text({3}), "3");
  EXPECT_EQ(cpu_list_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  for (const std::vector<int>& list : Lists{{}, {0}, {0, 1}, {5, 7, 8, 9, 1023}})
    EXPECT_EQ(parse_cpu_list(cpu_list_text(list)), list);
}

TEST(CpuShare, WhatIsNoListIsRefused) {
  for (const char* text :
       {"3-1", "1,1", "2,1", "0-3,2-5", "x", "1-", "-3", "1,,2", "1-x", "99999999999", "1048576"})
    EXPECT_THROW(parse_cpu_list(text), Error) << text;
}

TEST(CpuShare, BoundRanksEachHaveTheirOwn) {
  EXPECT_TRUE(can_have_own_cpus({{0}, {1}}));
  EXPECT_FALSE(can_have_own_cpus({{0}, {0}}));
}

TEST(CpuShare, FreeRanksShareWhatThereIs) {
  EXPECT_TRUE(can_have_own_cpus({{0, 1}, {0, 1}}));
  EXPECT_FALSE(can_have_own_cpus({{0, 1}, {0, 1}, {0, 1}}));
}

TEST(CpuShare, RanksMoveToMakeRoom) {
  EXPECT_TRUE(can_have_own_cpus({{0, 1, 2}, {0, 1}, {0}}));
  EXPECT_FALSE(can_have_own_cpus({{0, 1, 2, 3}, {0}, {1}, {0, 1}}));
}

TEST(CpuShare, ManyFreeRanks) {
  std::vector<int> all(256);
  std::iota(all.begin(), all.end(), 0);
  Lists ranks(256, all);
  EXPECT_TRUE(can_have_own_cpus(ranks));
  ranks.push_back(all);
  EXPECT_FALSE(can_have_own_cpus(ranks));
}

}  // namespace
}  // namespace ropewalk

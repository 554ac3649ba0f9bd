#include "gtest/gtest.h"
#include "topology/cgroup.h"
#include "topology/fake_root.h"

namespace ropewalk {
namespace {

void write_meminfo(const FakeRoot& root, const std::string& available) {
  root.write("proc/meminfo", "MemTotal:       24682416 kB\nMemFree:        16527680 kB\n" +
                                 available + "SwapFree:       90000000 kB\n");
}

void limit_by_cgroup(const FakeRoot& root, const std::string& max, const std::string& current) {
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.write("sys/fs/cgroup/job/memory.max", max);
  root.write("sys/fs/cgroup/job/memory.current", current);
}

TEST(AvailableMemory, IsTheMachinesWhereNoCgroupLimits) {
  FakeRoot root;
  write_meminfo(root, "MemAvailable:       1000 kB\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 1024000);
  limit_by_cgroup(root, "max\n", "500\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 1024000);
}

TEST(AvailableMemory, IsTheLessOfMachineAndCgroup) {
  FakeRoot root;
  write_meminfo(root, "MemAvailable:       1000 kB\n");
  limit_by_cgroup(root, "5000\n", "1000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 4000);
  limit_by_cgroup(root, "5000000\n", "1000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 1024000);
}

TEST(AvailableMemory, NeedsNoMeminfo) {
  FakeRoot root;
  EXPECT_EQ(available_memory_bytes(root.path()), std::nullopt);
  for (const char* line : {"", "MemAvailable:", "MemAvailable: lots\n"}) {
    write_meminfo(root, line);
    EXPECT_EQ(available_memory_bytes(root.path()), std::nullopt) << line;
  }
  limit_by_cgroup(root, "5000\n", "1000\n");
  EXPECT_EQ(available_memory_bytes(root.path()), 4000);
}

TEST(AvailableMemory, OfThisMachineIsKnown) {
  const auto bytes = available_memory_bytes();
  ASSERT_TRUE(bytes);
  EXPECT_GT(*bytes, uint64_t{1} << 20);
}

}  // namespace
}  // namespace ropewalk

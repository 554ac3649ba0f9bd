#include "topology/cgroup.h"

#include "gtest/gtest.h"
#include "topology/fake_root.h"

namespace ropewalk {
namespace {

// Line by line as Linux writes them.
constexpr char kV2Cgroup[] = "0::/user.slice/job.scope\n";
constexpr char kV2Mountinfo[] =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kV1Cgroup[] =
    "9:name=systemd:/\n"
    "5:memory:/docker/abc\n"
    "4:cpuset:/elsewhere\n"
    "3:cpu,cpuacct:/docker/abc\n"
    "0::/\n";
constexpr char kV1Mountinfo[] =
    "33 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro shared:1 master:2 - cgroup cgroup "
    "rw,cpu,cpuacct\n"
    "34 31 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    "35 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

TEST(CpuMax, Parses) {
  EXPECT_EQ(parse_cpu_max("150000 100000\n"), 1.5);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  EXPECT_EQ(parse_cpu_max("max 100000\n"), std::nullopt);
  for (const char* bad : {"", "\n", "max", "100000", "1 0", "0 100000", "-1 100000", "1x 2",
                          "1 2 3", "99999999999999999999 100000"})
    EXPECT_EQ(parse_cpu_max(bad), std::nullopt) << bad;
}

TEST(CfsQuota, Parses) {
  EXPECT_EQ(parse_cfs_quota("400000\n", "100000\n"), 4.0);
  EXPECT_EQ(parse_cfs_quota("-1\n", "100000\n"), std::nullopt);
  EXPECT_EQ(parse_cfs_quota("", "100000\n"), std::nullopt);
  EXPECT_EQ(parse_cfs_quota("1000\n", "0\n"), std::nullopt);
}

TEST(FindCgroups, Version2) {
  const std::vector<CgroupPlace> want = {{2, "/sys/fs/cgroup", "/", "/user.slice/job.scope"}};
  EXPECT_EQ(find_cgroups(kV2Cgroup, kV2Mountinfo, "cpu"), want);
}

TEST(FindCgroups, Version1) {
  const std::vector<CgroupPlace> want = {
      {1, "/sys/fs/cgroup/cpu,cpuacct", "/docker/abc", "/docker/abc"}};
  EXPECT_EQ(find_cgroups(kV1Cgroup, kV1Mountinfo, "cpu"), want);
}

TEST(FindCgroups, BothAtOnceAsOnHybridSystems) {
  const std::string mountinfo =
      std::string(kV1Mountinfo) + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  const auto places = find_cgroups(kV1Cgroup, mountinfo, "cpu");
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].version, 1);
  EXPECT_EQ(places[1], (CgroupPlace{2, "/sys/fs/cgroup/unified", "/", "/"}));
}

TEST(FindCgroups, UndoesEscapes) {
  const auto places = find_cgroups(
      "0::/a:b\n", "31 23 0:28 / /mnt/with\\040space\\134 rw - cgroup2 cgroup2 rw\n", "cpu");
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].mount_point, "/mnt/with space\\");
  EXPECT_EQ(places[0].path, "/a:b");
}

TEST(FindCgroups, PassesOverRubbish) {
  for (const char* text : {"", "\n\n", ":::", "0", "0:", " - ", "1 2 - cgroup2", "\\", "- - -"}) {
    EXPECT_TRUE(find_cgroups(text, kV2Mountinfo, "cpu").empty()) << text;
    EXPECT_TRUE(find_cgroups(kV2Cgroup, text, "cpu").empty()) << text;
  }
}

TEST(CgroupDirectories, FromTheGroupUpToTheMount) {
  using List = std::vector<std::string>;
  EXPECT_EQ(cgroup_directories({2, "/c", "/", "/a/b"}), (List{"/c/a/b", "/c/a", "/c"}));
  EXPECT_EQ(cgroup_directories({2, "/c", "/", "/"}), List{"/c"});
  EXPECT_EQ(cgroup_directories({1, "/c", "/docker/x", "/docker/x"}), List{"/c"});
  EXPECT_EQ(cgroup_directories({1, "/c", "/docker/x", "/docker/x/y"}), (List{"/c/y", "/c"}));
  EXPECT_EQ(cgroup_directories({1, "/c", "/docker/x", "/docker/xyz"}), List{"/c"});
  EXPECT_EQ(cgroup_directories({2, "/c", "/", "/../../other"}), List{"/c"});
}

TEST(CgroupCpuQuota, TakesTheLeastOfAllAncestors) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV2Cgroup);
  root.write("proc/self/mountinfo", kV2Mountinfo);
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt);
  root.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt);
  root.write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 2.5);
  root.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "300000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 2.5);
  root.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "20000 40000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 0.5);
}

TEST(CgroupCpuQuota, Version1InAContainer) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV1Cgroup);
  root.write("proc/self/mountinfo", kV1Mountinfo);
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt) << "no period";
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(root.path()), 2.0);
}

TEST(CgroupCpuQuota, NoLimitWithoutProc) {
  FakeRoot root;
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt);
  root.write("proc/self/cgroup", kV2Cgroup);
  EXPECT_EQ(cgroup_cpu_quota(root.path()), std::nullopt);
}

TEST(CgroupMemoryLeft, TakesTheLeastOfAllAncestors) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV2Cgroup);
  root.write("proc/self/mountinfo", kV2Mountinfo);
  const std::string slice = "sys/fs/cgroup/user.slice/", job = slice + "job.scope/";
  root.write(job + "memory.max", "max\n");
  root.write(job + "memory.current", "1000\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), std::nullopt);
  root.write(slice + "memory.max", "8000\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), std::nullopt) << "what is used is not known";
  root.write(slice + "memory.current", "3000\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), 5000);
  root.write(job + "memory.max", "4000\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), 3000);
  root.write(job + "memory.current", "4100\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), 0);
}

TEST(CgroupMemoryLeft, CountsThePageCacheAsFreeButNoSwapAndNoSharedMemory) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV2Cgroup);
  root.write("proc/self/mountinfo", kV2Mountinfo);
  const std::string slice = "sys/fs/cgroup/user.slice/";
  root.write(slice + "memory.max", "8000\n");
  root.write(slice + "memory.current", "6000\n");
  root.write(slice + "memory.swap.max", "90000\n");
  root.write(slice + "memory.stat",
             "anon 2000\nfile 4000\nshmem 1000\ninactive_anon 1000\ninactive_file 2000\n"
             "active_file 1000\nslab_reclaimable 500\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), 5500);
}

TEST(CgroupMemoryLeft, Version1InAContainer) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV1Cgroup);
  root.write("proc/self/mountinfo", kV1Mountinfo);
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), std::nullopt);
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), 1000);
  root.write("sys/fs/cgroup/memory/memory.stat",
             "inactive_file 9\ntotal_inactive_file 100\ntotal_active_file 10\n");
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), 1110);
}

TEST(CgroupMemoryLeft, NoLimitWithoutProc) {
  FakeRoot root;
  EXPECT_EQ(cgroup_memory_left_bytes(root.path()), std::nullopt);
}

}  // namespace
}  // namespace ropewalk

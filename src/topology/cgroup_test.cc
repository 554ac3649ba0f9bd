#include "topology/cgroup.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace ropewalk {
namespace {

// Line by line as Linux writes them.
constexpr char kV2Cgroup[] = "0::/user.slice/job.scope\n";
constexpr char kV2Mountinfo[] =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr char kV1Cgroup[] =
    "9:name=systemd:/\n"
    "4:cpuset:/elsewhere\n"
    "3:cpu,cpuacct:/docker/abc\n"
    "0::/\n";
constexpr char kV1Mountinfo[] =
    "33 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro shared:1 master:2 - cgroup cgroup "
    "rw,cpu,cpuacct\n"
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

TEST(FindCpuCgroups, Version2) {
  const std::vector<CgroupPlace> want = {{2, "/sys/fs/cgroup", "/", "/user.slice/job.scope"}};
  EXPECT_EQ(find_cpu_cgroups(kV2Cgroup, kV2Mountinfo), want);
}

TEST(FindCpuCgroups, Version1) {
  const std::vector<CgroupPlace> want = {
      {1, "/sys/fs/cgroup/cpu,cpuacct", "/docker/abc", "/docker/abc"}};
  EXPECT_EQ(find_cpu_cgroups(kV1Cgroup, kV1Mountinfo), want);
}

TEST(FindCpuCgroups, BothAtOnceAsOnHybridSystems) {
  const std::string mountinfo =
      std::string(kV1Mountinfo) + "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  const auto places = find_cpu_cgroups(kV1Cgroup, mountinfo);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].version, 1);
  EXPECT_EQ(places[1], (CgroupPlace{2, "/sys/fs/cgroup/unified", "/", "/"}));
}

TEST(FindCpuCgroups, UndoesEscapes) {
  const auto places = find_cpu_cgroups(
      "0::/a:b\n", "31 23 0:28 / /mnt/with\\040space\\134 rw - cgroup2 cgroup2 rw\n");
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].mount_point, "/mnt/with space\\");
  EXPECT_EQ(places[0].path, "/a:b");
}

TEST(FindCpuCgroups, PassesOverRubbish) {
  for (const char* text : {"", "\n\n", ":::", "0", "0:", " - ", "1 2 - cgroup2", "\\", "- - -"}) {
    EXPECT_TRUE(find_cpu_cgroups(text, kV2Mountinfo).empty()) << text;
    EXPECT_TRUE(find_cpu_cgroups(kV2Cgroup, text).empty()) << text;
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

/// A directory that stands for "/", with the files that a test wants in it.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = testing::TempDir() + "ropewalk-cgroup-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~FakeRoot() { std::filesystem::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) const {
    const auto path = path_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(path_); }

 private:
  std::filesystem::path path_;
};

TEST(CgroupCpuQuota, TakesTheLeastOfAllAncestors) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV2Cgroup);
  root.write("proc/self/mountinfo", kV2Mountinfo);
  EXPECT_EQ(root.quota(), std::nullopt);
  root.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "max 100000\n");
  EXPECT_EQ(root.quota(), std::nullopt);
  root.write("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(root.quota(), 2.5);
  root.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "300000 100000\n");
  EXPECT_EQ(root.quota(), 2.5);
  root.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "20000 40000\n");
  EXPECT_EQ(root.quota(), 0.5);
}

TEST(CgroupCpuQuota, Version1InAContainer) {
  FakeRoot root;
  root.write("proc/self/cgroup", kV1Cgroup);
  root.write("proc/self/mountinfo", kV1Mountinfo);
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(root.quota(), std::nullopt) << "no period";
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.quota(), 2.0);
}

TEST(CgroupCpuQuota, NoLimitWithoutProc) {
  FakeRoot root;
  EXPECT_EQ(root.quota(), std::nullopt);
  root.write("proc/self/cgroup", kV2Cgroup);
  EXPECT_EQ(root.quota(), std::nullopt);
}

}  // namespace
}  // namespace ropewalk

// How much CPU time and memory a process may still take, above all by the limits of control groups,
// versions 1 and 2 (cgroups(7); the kernel's cgroup-v2.rst and cgroup-v1/memory.rst). Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ropewalk {

/// Where one hierarchy that can limit a resource is mounted, and where this process stands in it.
struct CgroupPlace {
  int version = 2;
  std::string mount_point;  // "/sys/fs/cgroup"; escapes of mountinfo undone
  std::string mount_root;   // the group that the mount point shows: "/", or deeper in a container
  std::string path;         // the group of the process, seen from the hierarchy's root

  bool operator==(const CgroupPlace&) const = default;
};

/// From the texts of /proc/self/cgroup and /proc/self/mountinfo; `controller` is "cpu" or "memory".
/// Lines that make no sense are passed over.
std::vector<CgroupPlace> find_cgroups(std::string_view cgroup, std::string_view mountinfo,
                                      std::string_view controller);

/// The directories of the group and of its ancestors as far as the mount shows them, innermost
/// first. A path that lies outside the mount gives the mount point alone.
std::vector<std::string> cgroup_directories(const CgroupPlace& place);

/// CPUs by the text of cpu.max ("150000 100000" is 1.5); nothing where unlimited or malformed.
std::optional<double> parse_cpu_max(std::string_view text);
/// The same by the texts of cpu.cfs_quota_us and cpu.cfs_period_us.
std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us);

/// The least quota, in CPUs, over all groups that this process is in; nothing where none is set.
/// `root` stands before every path ("" is the machine itself).
std::optional<double> cgroup_cpu_quota(const std::string& root = "");

/// The least that a memory limit leaves to be allocated, in bytes, over all groups that this
/// process is in; nothing where none is set. The files' pages in the page cache count as free: the
/// kernel takes them first. Swap does not count.
std::optional<uint64_t> cgroup_memory_left_bytes(const std::string& root = "");

/// Bytes that this process and its children can still allocate before the kernel must kill one: the
/// least of what the machine has available (MemAvailable) and of what each memory cgroup of this
/// process leaves. Others may take it at any time. Nothing where neither can be read.
std::optional<uint64_t> available_memory_bytes(const std::string& root = "");

}  // namespace ropewalk

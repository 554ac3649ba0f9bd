#include "topology/cgroup.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/text.h"
#include "topology/read_file.h"

namespace ropewalk {
namespace {

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::ranges::count(words, word) != 0;
}

/// The number in a file's text, which may end its line.
std::optional<int64_t> number_in(std::string_view text) {
  return parse_number<int64_t>(text.substr(0, text.find_last_not_of(" \n") + 1));
}

std::optional<double> cpus_of(std::optional<int64_t> quota_us, std::optional<int64_t> period_us) {
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return {};
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

/// mountinfo writes space, tab, newline and backslash as three octal digits.
std::string unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && i + 3 < text.size()) {
      const char* digits = text.data() + i + 1;
      if (std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
        plain += static_cast<char>(code);
        i += 3;
        continue;
      }
    }
    plain += text[i];
  }
  return plain;
}

/// The group in /proc/self/cgroup: "0::/path" for version 2, "4:cpu,cpuacct:/path" for version 1.
std::optional<std::string> group_path(std::string_view cgroup, int version,
                                      std::string_view controller) {
  for (std::string_view line : split(cgroup, '\n')) {
    const auto words = split(line, ':');
    if (words.size() < 3) continue;
    const bool found = version == 2 ? words[0] == "0" && words[1].empty()
                                    : contains(split(words[1], ','), controller);
    if (found) return std::string(line.substr(words[0].size() + words[1].size() + 2));
  }
  return {};
}

std::optional<double> quota_of(int version, const std::string& directory) {
  if (version == 2) {
    const auto text = read_file(directory + "/cpu.max");
    return text ? parse_cpu_max(*text) : std::nullopt;
  }
  const auto quota = read_file(directory + "/cpu.cfs_quota_us");
  const auto period = read_file(directory + "/cpu.cfs_period_us");
  return quota && period ? parse_cfs_quota(*quota, *period) : std::nullopt;
}

std::optional<int64_t> read_number(const std::string& path) {
  const auto text = read_file(path);
  return text ? number_in(*text) : std::nullopt;
}

/// Of memory.stat: a line is "name bytes". 0 where it is not there.
int64_t stat_of(std::string_view stat, std::string_view name) {
  for (std::string_view line : split(stat, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() == 2 && words[0] == name) return number_in(words[1]).value_or(0);
  }
  return 0;
}

std::optional<uint64_t> memory_left_of(int version, const std::string& directory) {
  const bool v2 = version == 2;
  const auto limit = read_number(directory + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = read_number(directory + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return {};  // "max" is no number
  const std::string stat = read_file(directory + "/memory.stat").value_or("");
  const int64_t cache =
      v2 ? stat_of(stat, "inactive_file") + stat_of(stat, "active_file") +
               stat_of(stat, "slab_reclaimable")
         : stat_of(stat, "total_inactive_file") + stat_of(stat, "total_active_file");
  const int64_t held = std::max<int64_t>(0, *used - cache);
  return static_cast<uint64_t>(std::max<int64_t>(0, *limit - held));
}

/// "MemAvailable:   23308164 kB" of /proc/meminfo.
std::optional<uint64_t> machine_available_bytes(const std::string& root) {
  constexpr std::string_view kName = "MemAvailable:";
  const std::string meminfo = read_file(root + "/proc/meminfo").value_or("");
  for (std::string_view line : split(meminfo, '\n')) {
    if (!line.starts_with(kName)) continue;
    line.remove_prefix(std::min(line.find_first_not_of(' ', kName.size()), line.size()));
    const auto kib = parse_number<uint64_t>(line.substr(0, line.find(' ')));
    if (kib && *kib <= UINT64_MAX >> 10) return *kib << 10;
  }
  return {};
}

/// The least value of `limit_of`, over all groups that this process is in.
template <class Value>
std::optional<Value> least_limit(const std::string& root, std::string_view controller,
                                 std::optional<Value> (*limit_of)(int, const std::string&)) {
  const auto cgroup = read_file(root + "/proc/self/cgroup");
  const auto mountinfo = read_file(root + "/proc/self/mountinfo");
  if (!cgroup || !mountinfo) return {};
  std::optional<Value> least;
  for (const CgroupPlace& place : find_cgroups(*cgroup, *mountinfo, controller)) {
    for (const std::string& directory : cgroup_directories(place)) {
      const auto limit = limit_of(place.version, root + directory);
      if (limit && (!least || *limit < *least)) least = limit;
    }
  }
  return least;
}

}  // namespace

std::vector<CgroupPlace> find_cgroups(std::string_view cgroup, std::string_view mountinfo,
                                      std::string_view controller) {
  std::vector<CgroupPlace> places;
  for (std::string_view line : split(mountinfo, '\n')) {
    // "36 35 98:0 /root /mount options optional... - type source super_options"
    const size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto head = split(line.substr(0, dash), ' ');
    const auto tail = split(line.substr(dash + 3), ' ');
    if (head.size() < 6 || tail.size() < 3) continue;
    int version = 0;
    if (tail[0] == "cgroup2") version = 2;
    if (tail[0] == "cgroup" && contains(split(tail[2], ','), controller)) version = 1;
    if (version == 0) continue;
    const auto path = group_path(cgroup, version, controller);
    if (path) places.push_back({version, unescape(head[4]), unescape(head[3]), *path});
  }
  return places;
}

std::vector<std::string> cgroup_directories(const CgroupPlace& place) {
  // The path below the mount point. A group outside of what the mount shows (its path then begins
  // otherwise, or with "/.." in a cgroup namespace) cannot be read; its ancestor there can.
  std::string below = place.path;
  if (place.mount_root != "/") {
    const std::string& root = place.mount_root;
    const bool inside = below == root || below.starts_with(root + "/");
    below = inside ? below.substr(root.size()) : "";
  }
  if (below.starts_with("/..")) below.clear();
  while (below.ends_with('/')) below.pop_back();

  std::vector<std::string> directories;
  while (!below.empty()) {
    directories.push_back(place.mount_point + below);
    below.resize(below.rfind('/'));
  }
  directories.push_back(place.mount_point);
  return directories;
}

std::optional<double> parse_cpu_max(std::string_view text) {
  const auto words = split(text.substr(0, text.find('\n')), ' ');
  if (words.size() != 2) return {};
  return cpus_of(number_in(words[0]), number_in(words[1]));  // "max" is no number
}

std::optional<double> parse_cfs_quota(std::string_view quota_us, std::string_view period_us) {
  return cpus_of(number_in(quota_us), number_in(period_us));  // -1 is unlimited
}

std::optional<double> cgroup_cpu_quota(const std::string& root) {
  return least_limit(root, "cpu", quota_of);
}

std::optional<uint64_t> cgroup_memory_left_bytes(const std::string& root) {
  return least_limit(root, "memory", memory_left_of);
}

std::optional<uint64_t> available_memory_bytes(const std::string& root) {
  const auto machine = machine_available_bytes(root);
  const auto groups = cgroup_memory_left_bytes(root);
  if (machine && groups) return std::min(*machine, *groups);
  return machine ? machine : groups;
}

}  // namespace ropewalk

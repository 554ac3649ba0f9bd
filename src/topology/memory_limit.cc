#include "topology/memory_limit.h"

#include <algorithm>
#include <charconv>

#include "topology/cgroup.h"
#include "topology/read_file.h"

namespace ropewalk {
namespace {

/// "MemAvailable:   23308164 kB" of /proc/meminfo.
std::optional<uint64_t> machine_available_bytes(const std::string& root) {
  constexpr std::string_view kName = "MemAvailable:";
  const std::string text = read_file(root + "/proc/meminfo").value_or("");
  size_t at = text.find(kName);
  if (at == std::string::npos) return {};
  at = text.find_first_not_of(' ', at + kName.size());
  if (at == std::string::npos) return {};
  uint64_t kib = 0;
  const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), kib);
  if (error != std::errc() || kib > UINT64_MAX >> 10) return {};
  return kib << 10;
}

}  // namespace

std::optional<uint64_t> available_memory_bytes(const std::string& root) {
  const auto machine = machine_available_bytes(root);
  const auto groups = cgroup_memory_left_bytes(root);
  if (machine && groups) return std::min(*machine, *groups);
  return machine ? machine : groups;
}

}  // namespace ropewalk

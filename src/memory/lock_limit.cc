#include "memory/lock_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <charconv>
#include <cstdint>
#include <string_view>

#include "topology/read_file.h"

namespace ropewalk {
namespace {

size_t bytes_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? kUnlimited : static_cast<size_t>(limit);
}

/// CAP_IPC_LOCK, which the kernel heeds only in the first user namespace.
bool may_ignore_limit() {
  constexpr int kCapIpcLock = 14;
  constexpr std::string_view kName = "CapEff:\t";
  const std::string status = read_file("/proc/self/status").value_or("");
  const size_t at = status.find(kName);
  if (at == std::string::npos) return false;
  uint64_t capabilities = 0;
  const char* digits = status.data() + at + kName.size();
  std::from_chars(digits, status.data() + status.size(), capabilities, 16);
  if ((capabilities >> kCapIpcLock & 1) == 0) return false;
  const std::string users = read_file("/proc/self/uid_map").value_or("");
  return users.find("4294967295") != std::string::npos;
}

}  // namespace

LockLimit lock_limit() {
  rlimit limit{};
  if (may_ignore_limit() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {};
  return {bytes_of(limit.rlim_cur), bytes_of(limit.rlim_max)};
}

std::string text_of(const LockLimit& limit) {
  if (limit.bytes == kUnlimited) return "memory can be locked without limit";
  if (limit.bytes < size_t{1} << 20) return fmt::format("{} KiB can be locked", limit.bytes >> 10);
  return fmt::format("{} MiB can be locked", limit.bytes >> 20);
}

std::string advice(const LockLimit& limit) {
  if (limit.hard_bytes >= kLockedBytesWanted)
    return limit.hard_bytes == kUnlimited ? "ulimit -l unlimited" : "ulimit -l hard";
  return "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf, then log in "
         "again (containers: --ulimit memlock=-1; systemd and slurmd: LimitMEMLOCK=infinity)";
}

}  // namespace ropewalk

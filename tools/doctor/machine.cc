#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/descriptors.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "memory/lock_limit.h"
#include "memory/unmap_watch.h"
#include "tools/doctor/doctor.h"
#include "topology/cgroup.h"
#include "topology/topology.h"

namespace ropewalk::tools {
namespace {

constexpr rlim_t kFilesWanted = 4096;

// The number after "Name:" in a file like /proc/meminfo, in its unit; -1 where there is none.
int64_t field_of(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
  }
  return -1;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Diagnosis check_memlock() {
  const LockLimit limit = lock_limit();
  const std::string text = text_of(limit) + " (RDMA registers memory by locking it)";
  if (limit.suffices()) return {Severity::ok, "memlock", text, ""};
  return {Severity::warn, "memlock", text, advice(limit)};
}

Diagnosis check_open_files() {
  raise_descriptor_limit();  // as ranks do
  const rlimit limit = descriptor_limits();
  const std::string text =
      fmt::format("{} open files (a rank needs a few per peer)", limit.rlim_cur);
  if (limit.rlim_cur >= kFilesWanted) return {Severity::ok, "nofile", text, ""};
  const std::string raise = fmt::format("ulimit -n {}", std::min(limit.rlim_max, rlim_t{65536}));
  const Severity severity = limit.rlim_cur < 256 ? Severity::fail : Severity::warn;
  return {severity, "nofile", text,
          limit.rlim_max >= kFilesWanted
              ? raise
              : "echo '* - nofile 65536' | sudo tee /etc/security/limits.d/ropewalk.conf, then log "
                "in again"};
}

Diagnosis check_memory() {
  constexpr uint64_t kBytesWanted = uint64_t{512} << 20;
  const auto available = available_memory_bytes();
  if (!available) return {Severity::ok, "memory", "how much is available is not known", ""};
  const int64_t total_kib = std::max<int64_t>(0, field_of("/proc/meminfo", "MemTotal"));
  const auto left = cgroup_memory_left_bytes();
  std::string text = fmt::format("{} available of {}", bytes_text(*available),
                                 bytes_text(static_cast<uint64_t>(total_kib) << 10));
  if (left && *left <= *available) text += ", by the memory limit of the cgroup";
  const bool is_short = *available < kBytesWanted;
  return {is_short ? Severity::warn : Severity::ok, "memory", text,
          is_short ? "ps aux --sort=-rss | head" : ""};
}

Diagnosis check_huge_pages() {
  const std::string thp = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const std::string shmem = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const int64_t reserved = field_of("/proc/meminfo", "HugePages_Free");
  const auto chosen = [](const std::string& modes) {
    const size_t open = modes.find('['), close = modes.find(']');
    return open == std::string::npos || close == std::string::npos
               ? std::string("absent")
               : modes.substr(open + 1, close - open - 1);
  };
  const std::string mode = chosen(shmem);
  const std::string text =
      fmt::format("transparent: {}, for shared memory: {}; reserved and free: {}", chosen(thp),
                  mode, std::max<int64_t>(reserved, 0));
  // Registered memory is a memfd: of the transparent kind only "shmem" ones serve it.
  const bool serves = reserved > 0 || mode == "advise" || mode == "always" ||
                      mode == "within_size" || mode == "force";
  return {serves ? Severity::ok : Severity::warn, "huge pages", text,
          serves ? "" : "echo advise | sudo tee /sys/kernel/mm/transparent_hugepage/shmem_enabled"};
}

Diagnosis check_memfd() {
  const UniqueFd file(memfd_create("ropewalk-doctor", MFD_CLOEXEC));
  constexpr size_t kBytes = 1 << 20;
  if (file && ftruncate(file.get(), kBytes) == 0) {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory != MAP_FAILED) {
      munmap(memory, kBytes);
      return {Severity::ok, "memfd", "memory files work (/dev/shm is not used)", ""};
    }
  }
  return {Severity::fail, "memfd", fmt::format("memory files do not work: {}", strerror(errno)),
          "allow memfd_create and mmap in the container's seccomp profile"};
}

Diagnosis check_unmap_watch() {
  const auto watch = UnmapWatch::of_process();
  if (watch->refusal().empty())
    return {Severity::ok, "userfaultfd",
            "works: RDMA registers memory that was not allocated by Ropewalk once", ""};
  return {Severity::warn, "userfaultfd",
          watch->refusal() +
              "; RDMA registers memory that was not allocated by Ropewalk for every operation",
          watch->advice()};
}

Diagnosis check_peer_memory() {
  const UniqueFd file(memfd_create("ropewalk-doctor", MFD_CLOEXEC));
  if (!file) return {Severity::fail, "peer memory", "no memory file to try with", "see memfd"};
  // The child opens the parent's: like a peer it has no special right to it.
  const std::string path = fmt::format("/proc/{}/fd/{}", getpid(), file.get());
  const pid_t child = fork();
  if (child == 0) {
    const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
    _exit(opened >= 0 ? 0 : errno);
  }
  if (child < 0) return {Severity::fail, "peer memory", strerror(errno), "ulimit -u"};
  int wait_status = 0;
  waitpid(child, &wait_status, 0);
  const int error = WEXITSTATUS(wait_status);
  if (error == 0) {
    return {Severity::ok, "peer memory", "another process's memory file opens through /proc", ""};
  }
  return {
      Severity::fail, "peer memory",
      fmt::format("opening {}: {}; ranks of this host cannot share memory", path, strerror(error)),
      "run all ranks as one user; containers: --cap-add SYS_PTRACE, one pid namespace; or use "
      "--transport tcp"};
}

Diagnosis check_cpus() {
  const size_t in_mask = allowed_cpu_list().size();
  const int usable = allowed_cpus();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::string text = fmt::format(
      "{} usable ({} online, {} in the affinity mask, cpu.max {})", usable, online, in_mask,
      first_line("/sys/fs/cgroup/cpu.max").empty() ? "none" : first_line("/sys/fs/cgroup/cpu.max"));
  const bool is_cut = static_cast<size_t>(usable) < in_mask;
  return {is_cut ? Severity::warn : Severity::ok, "cpus", text,
          is_cut ? fmt::format("start at most {} ranks here, or raise the cgroup's cpu.max", usable)
                 : ""};
}

}  // namespace ropewalk::tools

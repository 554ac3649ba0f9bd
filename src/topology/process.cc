// This process: which CPUs it may use, binding a thread to one, who its host and surroundings are.
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "ropewalk/status.h"
#include "topology/cgroup.h"
#include "topology/read_file.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

using CpuSet = std::unique_ptr<cpu_set_t, decltype([](cpu_set_t* set) { CPU_FREE(set); })>;

/// "pid4026531836". Without /proc no other process's files can be mapped, so the process then gets
/// a namespace of its own.
std::string namespace_id(const char* kind) {
  struct stat status;
  if (::stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &status) == 0)
    return fmt::format("{}{}", kind, status.st_ino);
  return fmt::format("{}-of-process-{}", kind, ::getpid());
}

}  // namespace

std::vector<int> allowed_cpu_list() {
  // The kernel refuses with EINVAL a set smaller than its own; machines with more than 1024 CPUs
  // need more than the fixed cpu_set_t.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    const CpuSet set(CPU_ALLOC(static_cast<size_t>(cpus)));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    if (!set) break;
    CPU_ZERO_S(bytes, set.get());
    if (::sched_getaffinity(0, bytes, set.get()) != 0) {
      if (errno == EINVAL) continue;
      break;
    }
    std::vector<int> list;
    for (int cpu = 0; cpu < cpus; ++cpu)
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) list.push_back(cpu);
    if (!list.empty()) return list;
    break;
  }
  // Where a sandbox forbids the call: what the library believes.
  std::vector<int> list(std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<int>(i);
  return list;
}

int allowed_cpus() {
  const int by_affinity = static_cast<int>(allowed_cpu_list().size());
  const auto quota = cgroup_cpu_quota();
  if (!quota || *quota >= by_affinity) return by_affinity;
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

void bind_thread_to_cpu(int cpu) {
  const auto fail = [cpu](const std::string& why) {
    std::string allowed;
    for (int other : allowed_cpu_list()) allowed += fmt::format(" {}", other);
    throw Error(ErrorCode::invalid_argument, "bind_thread_to_cpu",
                fmt::format("cannot bind a thread to CPU {}: {}", cpu, why),
                fmt::format("name one of the allowed CPUs:{}", allowed));
  };
  constexpr int kCpusMax = 1 << 20;
  if (cpu < 0 || cpu >= kCpusMax) fail("no such CPU");
  const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpu) + 1);
  const CpuSet set(CPU_ALLOC(static_cast<size_t>(cpu) + 1));
  if (!set) fail("out of memory");
  CPU_ZERO_S(bytes, set.get());
  CPU_SET_S(static_cast<size_t>(cpu), bytes, set.get());
  if (::sched_setaffinity(0, bytes, set.get()) != 0) fail(std::strerror(errno));
}

std::string host_identity() {
  std::string boot_id = read_file("/proc/sys/kernel/random/boot_id").value_or("");
  while (boot_id.ends_with('\n')) boot_id.pop_back();
  if (boot_id.empty()) boot_id = host_name();
  return fmt::format("{}/{}/{}/uid{}", boot_id, namespace_id("pid"), namespace_id("user"),
                     ::geteuid());
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

}  // namespace ropewalk

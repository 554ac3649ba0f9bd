// CPUs: which ones this process may use, and binding a thread to one.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "ropewalk/status.h"
#include "topology/cgroup.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

struct CpuSetFree {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using CpuSet = std::unique_ptr<cpu_set_t, CpuSetFree>;

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

}  // namespace ropewalk

#include "tools/launcher/binding.h"

#include <hwloc.h>
#include <sched.h>

#include <map>

namespace ropewalk::tools {
namespace {

class Topology {
 public:
  Topology() {
    hwloc_topology_init(&topology_);
    loaded_ = hwloc_topology_load(topology_) == 0;
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  // The core of a CPU, or the CPU's own number (made distinct from cores') where hwloc knows none.
  int core_of(int cpu) const {
    hwloc_obj_t pu = loaded_ ? hwloc_get_pu_obj_by_os_index(topology_, cpu) : nullptr;
    hwloc_obj_t core = pu ? hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_CORE, pu) : nullptr;
    return core ? static_cast<int>(core->logical_index) : -1 - cpu;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
  bool loaded_ = false;
};

}  // namespace

std::vector<int> cpus_for_ranks(int ranks) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  if (ranks > CPU_COUNT(&allowed)) return {};
  const Topology topology;
  std::map<int, int> used_of_core;
  std::multimap<int, int> cpu_by_round;  // n-th hardware thread of its core -> CPU, in order
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) {
      cpu_by_round.emplace(used_of_core[topology.core_of(cpu)]++, cpu);
    }
  }
  std::vector<int> cpus;
  for (const auto& [round, cpu] : cpu_by_round) cpus.push_back(cpu);
  cpus.resize(static_cast<size_t>(ranks));
  return cpus;
}

bool bind_process_to_cpu(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(0, sizeof one, &one) == 0;
}

}  // namespace ropewalk::tools

// NUMA placement of memory, and which CPUs are near a device, by hwloc.
#include <hwloc.h>
#include <hwloc/linux.h>
#include <sched.h>

#include <memory>

#include "topology/topology.h"

namespace ropewalk {
namespace {

using Topology =
    std::unique_ptr<hwloc_topology,
                    decltype([](hwloc_topology_t topology) { hwloc_topology_destroy(topology); })>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s,
                               decltype([](hwloc_bitmap_t bitmap) { hwloc_bitmap_free(bitmap); })>;

/// Only NUMA nodes and processing units are needed; caches and devices are what takes hwloc long.
Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

/// Loaded once, then only read, which hwloc allows from several threads.
hwloc_topology_t shared_topology() {
  static const Topology topology = load_topology();
  return topology.get();
}

}  // namespace

bool bind_memory_near_caller(void* address, size_t bytes) {
  const hwloc_topology_t topology = shared_topology();
  if (topology == nullptr || bytes == 0) return false;
  if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) < 2) return false;
  const int cpu = ::sched_getcpu();
  if (cpu < 0) return false;
  const Bitmap cpus(hwloc_bitmap_alloc()), nodes(hwloc_bitmap_alloc());
  if (!cpus || !nodes) return false;
  hwloc_bitmap_only(cpus.get(), static_cast<unsigned>(cpu));
  if (hwloc_cpuset_to_nodeset(topology, cpus.get(), nodes.get()) != 0) return false;
  if (hwloc_bitmap_iszero(nodes.get())) return false;
  return hwloc_set_area_membind(topology, address, bytes, nodes.get(), HWLOC_MEMBIND_BIND,
                                HWLOC_MEMBIND_BYNODESET) == 0;
}

double local_share(const std::string& device_folder) {
  const Bitmap local(hwloc_bitmap_alloc());
  const std::string path = device_folder + "/local_cpus";
  if (!local || hwloc_linux_read_path_as_cpumask(path.c_str(), local.get()) != 0 ||
      hwloc_bitmap_iszero(local.get()))
    return 1;
  const std::vector<int> allowed = allowed_cpu_list();
  size_t near = 0;
  for (const int cpu : allowed)
    near += hwloc_bitmap_isset(local.get(), static_cast<unsigned>(cpu)) ? 1 : 0;
  return static_cast<double>(near) / static_cast<double>(allowed.size());
}

}  // namespace ropewalk

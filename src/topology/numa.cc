// NUMA placement of memory, and which CPUs are near a device, by hwloc.
#include <hwloc.h>
#include <hwloc/linux.h>
#include <sched.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "topology/cpu_share.h"
#include "topology/rows.h"
#include "topology/topology.h"

namespace ropewalk {
namespace {

using Topology =
    std::unique_ptr<hwloc_topology,
                    decltype([](hwloc_topology_t topology) { hwloc_topology_destroy(topology); })>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s,
                               decltype([](hwloc_bitmap_t bitmap) { hwloc_bitmap_free(bitmap); })>;

/// NUMA nodes, what they are attached to, and processing units; where `caches` are asked for the
/// last ones, and CPUs that this process may not use, too, so that all of a host number alike.
/// Caches and devices are what takes hwloc long.
Topology load_topology(bool caches = false) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  // NUMA nodes have the CPUs of what they are attached to: without it, all of them.
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  if (caches) {
    hwloc_topology_set_type_filter(raw, HWLOC_OBJ_L3CACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  }
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

/// Loaded once, then only read, which hwloc allows from several threads.
hwloc_topology_t shared_topology() {
  static const Topology topology = load_topology();
  return topology.get();
}

/// The one object of `type` that all of `cpus` belong to; -1: there is none.
int object_around(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t cpus) {
  for (hwloc_obj_t object = nullptr;
       (object = hwloc_get_next_obj_by_type(topology, type, object)) != nullptr;)
    if (hwloc_bitmap_isincluded(cpus, object->cpuset))
      return static_cast<int>(object->logical_index);
  return -1;
}

}  // namespace

Locality own_locality() {
  const std::vector<int> cpus = allowed_cpu_list();
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  if (static_cast<long>(cpus.size()) >= all) return {};
  static std::mutex mutex;
  static std::map<std::string, Locality> known;  // of the lists of CPUs that there were
  const std::string text = cpu_list_text(cpus);
  const std::lock_guard lock(mutex);
  const auto found = known.find(text);
  return found != known.end() ? found->second : known[text] = locality_of(text);
}

Locality locality_of(const std::string& cpus) {
  const Topology topology = load_topology(true);
  const Bitmap set(hwloc_bitmap_alloc());
  if (!topology || !set || hwloc_bitmap_list_sscanf(set.get(), cpus.c_str()) != 0) return {};
  return {object_around(topology.get(), HWLOC_OBJ_NUMANODE, set.get()),
          object_around(topology.get(), HWLOC_OBJ_L3CACHE, set.get())};
}

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

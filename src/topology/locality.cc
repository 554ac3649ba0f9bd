// Which CPUs are near a device, by hwloc.
#include <hwloc.h>
#include <hwloc/linux.h>

#include <memory>

#include "topology/topology.h"

namespace ropewalk {
namespace {

struct BitmapFree {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapFree>;

}  // namespace

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

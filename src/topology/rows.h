// How the ranks of a host with many are divided into rows, which the grid algorithm adds up one
// after the other: ranks that share a cache, or memory, belong together.
#pragma once

#include <string>
#include <vector>

namespace ropewalk {

/// Where a rank may run: the NUMA node, and the last-level cache, that all of its CPUs belong to,
/// as hwloc numbers them. -1: there are several, or none is known.
struct Locality {
  int numa_node = -1;
  int cache = -1;

  auto operator<=>(const Locality&) const = default;
};
/// This process's. Both unknown where it may run on all CPUs, which costs nothing to find out.
Locality own_locality();
/// Of a process that may run on these CPUs ("0-3,8") of the machine that hwloc finds, or is told of
/// by HWLOC_XMLFILE or HWLOC_SYNTHETIC.
Locality locality_of(const std::string& cpus);

/// Where the ranks of a communicator are. Equal on all of them: the planner goes by it.
struct Placement {
  std::vector<int> hosts;      // by rank: number of its host
  std::vector<int> rows = {};  // by rank: number of its row; empty: all are in one
  double ranks_per_cpu = 1;    // on the host of the job where that is most
};

/// Whether all ranks are on one host, and too many for one row. `hosts` as in a Placement.
bool is_one_host_with_rows(const std::vector<int>& hosts);

/// The number of each rank's row. About sqrt(n) rows of as many ranks, as far as caches and NUMA
/// nodes allow: so that each rank has the fewest partners in its row and its column together. Rows
/// are the ranks of a cache, of which a large one is divided evenly; of a NUMA node where caches
/// are of few ranks each; or else of neighbouring ranks. Pure.
std::vector<int> rows_of(const std::vector<Locality>& by_rank);

}  // namespace ropewalk

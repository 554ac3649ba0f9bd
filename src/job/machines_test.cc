// From descriptions of real machines, as hwloc reads them by HWLOC_XMLFILE, to what is planned on
// them. `tools/dependencies test` fetches the descriptions, of hwloc's own tests. Machines that
// those do not describe are in src/topology/rows_test.cc.
#include <gtest/gtest.h>
#include <hwloc.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "job/plan_request.h"
#include "schedule/algorithm.h"
#include "topology/rows.h"

namespace ropewalk {
namespace {

struct Machine {
  const char* file;
  int cores;
  size_t rows, ranks_of_row;  // where each core has a rank
};

/// While it lives hwloc finds the machine.
class Described {
 public:
  explicit Described(const std::string& path) {
    setenv("HWLOC_XMLFILE", path.c_str(), 1);
    EXPECT_EQ(hwloc_topology_init(&topology_), 0);
    EXPECT_EQ(hwloc_topology_load(topology_), 0);
    EXPECT_FALSE(hwloc_topology_is_thissystem(topology_)) << path;
  }
  ~Described() {
    hwloc_topology_destroy(topology_);
    unsetenv("HWLOC_XMLFILE");
  }
  /// Of ranks that are bound to one core each, in the order in which hwloc numbers cores.
  std::vector<Locality> one_rank_per_core() const {
    std::vector<Locality> by_rank;
    for (hwloc_obj_t core = nullptr;
         (core = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_CORE, core)) != nullptr;)
      by_rank.push_back(locality_of(std::to_string(hwloc_bitmap_first(core->cpuset))));
    return by_rank;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

class Machines : public ::testing::TestWithParam<Machine> {};

TEST_P(Machines, RanksThatShareMemoryAreARowOfTheGrid) {
  const char* const folder = std::getenv("TEST_MACHINES");
  const auto path = std::filesystem::path(folder == nullptr ? "" : folder) / GetParam().file;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "tools/dependencies test fetches " << path;
  const std::vector<Locality> ranks = Described(path).one_rank_per_core();
  ASSERT_EQ(std::ssize(ranks), GetParam().cores);
  const std::vector<int> rows = rows_of(ranks);
  std::map<int, size_t> ranks_of_row;
  std::map<int, Locality> node_of_row;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    ++ranks_of_row[rows[rank]];
    EXPECT_GE(ranks[rank].numa_node, 0) << rank;
    EXPECT_EQ(node_of_row.try_emplace(rows[rank], ranks[rank]).first->second.numa_node,
              ranks[rank].numa_node);
  }
  EXPECT_EQ(ranks_of_row.size(), GetParam().rows);
  for (const auto& [row, count] : ranks_of_row) EXPECT_EQ(count, GetParam().ranks_of_row) << row;

  Call call;
  call.count = 64 << 10;
  const TransportChoice transports{&shm_provider(), nullptr};
  const Placement placement{.hosts = std::vector<int>(rows.size(), 0), .rows = rows};
  const PlanDecision decision =
      plan_for(call, Config(), transports, placement, unmeasured_costs(transports));
  if (is_one_host_with_rows(placement.hosts)) {
    EXPECT_LE(decision.candidates[0].partners, rows.size() / GetParam().rows + GetParam().rows)
        << name_of(decision.algorithm);
  } else {
    EXPECT_EQ(decision.algorithm, Algorithm::direct) << name_of(decision.algorithm);
  }
}

INSTANTIATE_TEST_SUITE_P(Hwloc, Machines,
                         ::testing::Values(Machine{"192em64t-24n8c2t.xml", 192, 24, 8},
                                           Machine{"96em64t-4n4d3ca2co-pci.xml", 96, 16, 6},
                                           Machine{"power8gpudistances.xml", 8, 2, 4}),
                         [](const auto& instance) {
                           const std::string file = instance.param.file;
                           return file.substr(0, file.find_first_of("-."));
                         });

}  // namespace
}  // namespace ropewalk

#include "topology/rows.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace ropewalk {
namespace {

/// While it lives hwloc finds the machine `synthetic`, by a file of its as HWLOC_XMLFILE.
class Machine {
 public:
  explicit Machine(const char* synthetic) {
    hwloc_topology_t topology = nullptr;
    EXPECT_EQ(hwloc_topology_init(&topology), 0);
    EXPECT_EQ(hwloc_topology_set_synthetic(topology, synthetic), 0);
    EXPECT_EQ(hwloc_topology_load(topology), 0);
    EXPECT_EQ(hwloc_topology_export_xml(topology, file_.c_str(), 0), 0);
    hwloc_topology_destroy(topology);
    setenv("HWLOC_XMLFILE", file_.c_str(), 1);
  }
  ~Machine() {
    unsetenv("HWLOC_XMLFILE");
    std::remove(file_.c_str());
  }

 private:
  const std::string file_ = testing::TempDir() + "machine-" + std::to_string(getpid()) + ".xml";
};

/// Of ranks bound to one core each, in order, of a machine whose first CPUs of cores are
/// `cpus_per_core` apart.
std::vector<Locality> one_rank_per_core(const char* synthetic, int cores, int cpus_per_core) {
  const Machine machine(synthetic);
  std::vector<Locality> by_rank;
  for (int core = 0; core < cores; ++core)
    by_rank.push_back(locality_of(std::to_string(core * cpus_per_core)));
  return by_rank;
}

struct Shape {
  size_t rows, least, most;  // how many, and of how many ranks
  bool operator==(const Shape&) const = default;
};
Shape shape_of(const std::vector<int>& rows) {
  std::map<int, size_t> sizes;
  for (const int row : rows) ++sizes[row];
  const auto [least, most] = std::ranges::minmax_element(
      sizes, {}, [](const std::pair<const int, size_t>& row) { return row.second; });
  return {sizes.size(), least->second, most->second};
}
/// Ranks of a row share a cache.
bool are_within_caches(const std::vector<int>& rows, const std::vector<Locality>& by_rank) {
  std::map<int, Locality> of_row;
  for (size_t rank = 0; rank < rows.size(); ++rank)
    if (of_row.try_emplace(rows[rank], by_rank[rank]).first->second != by_rank[rank]) return false;
  return true;
}

// Two sockets of 12 dies of 8 cores with a cache each, two threads a core.
TEST(Rows, OfAnEpycAreItsDies) {
  const auto ranks = one_rank_per_core("pack:2 [numa] l3:12 core:8 pu:2", 192, 2);
  EXPECT_EQ(ranks[0], (Locality{0, 0}));
  EXPECT_EQ(ranks[191], (Locality{1, 23}));
  const std::vector<int> rows = rows_of(ranks);
  EXPECT_EQ(shape_of(rows), (Shape{24, 8, 8}));
  EXPECT_TRUE(are_within_caches(rows, ranks));
}

// Two chips of 72 cores, each with one cache: divided.
TEST(Rows, OfTwoGraceAreSixOfEach) {
  const auto ranks = one_rank_per_core("pack:2 [numa] l3:1 core:72 pu:1", 144, 1);
  const std::vector<int> rows = rows_of(ranks);
  EXPECT_EQ(shape_of(rows), (Shape{12, 12, 12}));
  EXPECT_TRUE(are_within_caches(rows, ranks));
}

// Eight ranks on two sockets are few: one row, which direct serves.
TEST(Rows, OfANodeWithEightGpusThereAreNone) {
  EXPECT_FALSE(is_one_host_with_rows(std::vector<int>(8, 0)));
  EXPECT_TRUE(is_one_host_with_rows(std::vector<int>(17, 3)));
  EXPECT_FALSE(is_one_host_with_rows({0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
}

// A cache for each two cores would make rows of two: NUMA nodes are divided instead.
TEST(Rows, SmallCachesAreLeftOut) {
  const auto ranks = one_rank_per_core("pack:1 [numa] l3:32 core:2 pu:1", 64, 1);
  EXPECT_EQ(shape_of(rows_of(ranks)), (Shape{8, 8, 8}));
}

TEST(Rows, OfRanksThatMayRunAnywhereAreNeighbours) {
  const std::vector<int> rows = rows_of(std::vector<Locality>(64));
  EXPECT_EQ(shape_of(rows), (Shape{8, 8, 8}));
  EXPECT_TRUE(std::ranges::is_sorted(rows));
  EXPECT_EQ(shape_of(rows_of(std::vector<Locality>(23))), (Shape{5, 4, 5}));
}

TEST(Rows, RanksOfACacheAreARowWhereverTheirNumbersAre) {
  std::vector<Locality> dealt;
  for (int rank = 0; rank < 64; ++rank) dealt.push_back({0, rank % 8});
  const std::vector<int> rows = rows_of(dealt);
  EXPECT_TRUE(are_within_caches(rows, dealt));
  EXPECT_EQ(shape_of(rows), (Shape{8, 8, 8}));
}

TEST(Locality, OfSeveralIsUnknown) {
  const Machine machine("pack:2 [numa] l3:2 core:4 pu:1");
  EXPECT_EQ(locality_of("0-3"), (Locality{0, 0}));
  EXPECT_EQ(locality_of("2-5"), (Locality{0, -1}));
  EXPECT_EQ(locality_of("0-15"), (Locality{-1, -1}));
  EXPECT_EQ(locality_of("9,11"), (Locality{1, 2}));
}

}  // namespace
}  // namespace ropewalk

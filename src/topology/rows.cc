#include "topology/rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <numeric>

namespace ropewalk {
namespace {

/// Of ranks in the order of their places: where units of equal `unit_of` begin, and the end.
template <class UnitOf>
std::vector<size_t> unit_begins(const std::vector<size_t>& ranks, const UnitOf& unit_of) {
  std::vector<size_t> begins = {0};
  for (size_t i = 1; i < ranks.size(); ++i)
    if (unit_of(ranks[i]) != unit_of(ranks[i - 1])) begins.push_back(i);
  begins.push_back(ranks.size());
  return begins;
}

}  // namespace

bool is_one_host_with_rows(const std::vector<int>& hosts) {
  constexpr size_t kOneRowMax = 16;
  const bool one_host = std::ranges::adjacent_find(hosts, std::not_equal_to()) == hosts.end();
  return one_host && hosts.size() > kOneRowMax;
}

std::vector<int> rows_of(const std::vector<Locality>& by_rank) {
  assert(!by_rank.empty());
  std::vector<size_t> ranks(by_rank.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  std::ranges::stable_sort(ranks, {}, [&](size_t rank) { return by_rank[rank]; });
  const double wanted = std::sqrt(static_cast<double>(ranks.size()));
  const auto are_large = [&](const std::vector<size_t>& begins) {
    return static_cast<double>(ranks.size()) / static_cast<double>(begins.size() - 1) >= wanted / 2;
  };
  std::vector<size_t> begins = unit_begins(ranks, [&](size_t rank) { return by_rank[rank]; });
  if (!are_large(begins))
    begins = unit_begins(ranks, [&](size_t rank) { return by_rank[rank].numa_node; });
  if (!are_large(begins)) begins = {0, ranks.size()};

  std::vector<int> rows(ranks.size());
  int row = 0;
  for (size_t unit = 0; unit + 1 < begins.size(); ++unit) {
    const size_t size = begins[unit + 1] - begins[unit];
    const auto parts = std::max<size_t>(1, std::lround(static_cast<double>(size) / wanted));
    for (size_t i = 0; i < size; ++i)
      rows[ranks[begins[unit] + i]] = row + static_cast<int>(i * parts / size);
    row += static_cast<int>(parts);
  }
  return rows;
}

}  // namespace ropewalk

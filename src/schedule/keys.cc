// Which schedules are worth verifying, and how they are called.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "schedule/verify.h"

namespace ropewalk {
namespace {

std::vector<int> roots_to_verify(Collective collective, int ranks) {
  if (!traits_of(collective).is_rooted()) return {0};
  std::vector<int> roots;
  for (int root = 0; root < ranks; ++root)
    if (ranks <= 8 || root <= 1 || root == ranks - 1) roots.push_back(root);
  return roots;
}

/// Host numbers: one host; every rank its own; pairs; 1, 2, 3, ... ranks; one rank and the rest;
/// ranks dealt round three hosts.
std::set<std::vector<int>> host_shapes(int ranks) {
  std::vector<int> one(ranks, 0), own(ranks), pairs(ranks), growing(ranks), lonely(ranks, 1),
      dealt(ranks);
  lonely[0] = 0;
  for (int r = 0, host = 0, left = 1; r < ranks; ++r) {
    own[r] = r;
    pairs[r] = r / 2;
    dealt[r] = r % std::min(3, ranks);
    growing[r] = host;
    if (--left == 0) left = ++host + 1;
  }
  return {one, own, pairs, growing, lonely, dealt};
}

}  // namespace

std::vector<ScheduleKey> keys_to_verify(int ranks_min, int ranks_max) {
  std::vector<ScheduleKey> keys;
  for (int ranks = ranks_min; ranks <= ranks_max; ++ranks)
    for (int c = 0; c < kCollectives; ++c) {
      const auto collective = static_cast<Collective>(c);
      for (Algorithm algorithm : algorithms_for(collective))
        for (int root : roots_to_verify(collective, ranks)) {
          if (descriptor_of(algorithm).grouped_by == GroupedBy::nothing) {
            keys.push_back({collective, algorithm, ranks, root, {}});
            continue;
          }
          for (const std::vector<int>& hosts : host_shapes(ranks))
            keys.push_back({collective, algorithm, ranks, root, hosts});
        }
    }
  return keys;
}

std::string describe(const ScheduleKey& key) {
  std::string text = fmt::format("{} {}, {} rank{}", name_of(key.collective),
                                 name_of(key.algorithm), key.ranks, key.ranks == 1 ? "" : "s");
  if (traits_of(key.collective).is_rooted()) text += fmt::format(", root {}", key.root);
  if (!key.hosts.empty() && descriptor_of(key.algorithm).grouped_by != GroupedBy::nothing)
    text += fmt::format(", hosts {}", fmt::join(key.hosts, " "));
  return text;
}

}  // namespace ropewalk

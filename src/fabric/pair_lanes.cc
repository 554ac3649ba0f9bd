#include "fabric/pair_lanes.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace ropewalk::verbs {
namespace {

struct Candidate {
  LanePair ports;
  LinkLayer link_layer;
  bool same_subnet;
  uint32_t rate_gbps;  // the slower end's
};

std::vector<Candidate> all_pairs(const std::vector<PortInfo>& a, const std::vector<PortInfo>& b) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j)
      if (a[i].link_layer == b[j].link_layer)
        all.push_back({{static_cast<uint8_t>(i), static_cast<uint8_t>(j)},
                       a[i].link_layer,
                       !a[i].subnet.empty() && a[i].subnet == b[j].subnet,
                       std::min(a[i].rate_gbps, b[j].rate_gbps)});
  return all;
}

/// Keeps those that are as `wanted`, where any is.
template <class Wanted>
void prefer(std::vector<Candidate>& pairs, Wanted wanted) {
  if (std::any_of(pairs.begin(), pairs.end(), wanted))
    std::erase_if(pairs, [&](const Candidate& pair) { return !wanted(pair); });
}

}  // namespace

std::vector<LanePair> pair_lanes(const std::vector<PortInfo>& a, const std::vector<PortInfo>& b,
                                 int lanes) {
  std::vector<Candidate> pairs = all_pairs(a, b);
  prefer(pairs, [](const Candidate& pair) { return pair.link_layer == LinkLayer::infiniband; });
  prefer(pairs, [](const Candidate& pair) { return pair.same_subnet; });
  uint32_t fastest = 0;
  for (const Candidate& pair : pairs) fastest = std::max(fastest, pair.rate_gbps);
  prefer(pairs, [&](const Candidate& pair) { return pair.rate_gbps >= fastest / 2; });
  if (pairs.empty()) return {};

  std::set<uint8_t> used_a, used_b;
  for (const Candidate& pair : pairs) {
    used_a.insert(pair.ports.a);
    used_b.insert(pair.ports.b);
  }
  const size_t count =
      lanes > 0 ? static_cast<size_t>(lanes) : std::max(used_a.size(), used_b.size());
  std::vector<int> lanes_of_a(a.size()), lanes_of_b(b.size());
  std::vector<LanePair> chosen;
  while (chosen.size() < count) {
    const auto load = [&](const Candidate& pair) {
      const int at_a = lanes_of_a[pair.ports.a], at_b = lanes_of_b[pair.ports.b];
      return std::tuple(std::max(at_a, at_b), at_a + at_b);
    };
    // The first of the least loaded: pairs are in the order of both lists.
    const auto least =
        std::min_element(pairs.begin(), pairs.end(),
                         [&](const Candidate& x, const Candidate& y) { return load(x) < load(y); });
    ++lanes_of_a[least->ports.a];
    ++lanes_of_b[least->ports.b];
    chosen.push_back(least->ports);
  }
  return chosen;
}

}  // namespace ropewalk::verbs

#include "fabric/pair_lanes.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

namespace ropewalk::verbs {
namespace {

struct Candidate {
  LanePair ports;
  LinkLayer link_layer;
  size_t detour;       // how far down both lists of subnets the one is in which they meet
  uint32_t rate_gbps;  // the slower end's
};

/// Of the subnets in common the one highest up in both lists, of those alike the first of `a`'s.
Candidate pair_of(const std::vector<PortInfo>& a, size_t i, const std::vector<PortInfo>& b,
                  size_t j) {
  Candidate pair{{static_cast<uint8_t>(i), static_cast<uint8_t>(j), {}},
                 a[i].link_layer,
                 std::numeric_limits<size_t>::max(),
                 std::min(a[i].rate_gbps, b[j].rate_gbps)};
  const std::vector<std::string>&of_a = a[i].subnets, &of_b = b[j].subnets;
  for (size_t at_a = 0; at_a < of_a.size(); ++at_a) {
    const auto found = std::find(of_b.begin(), of_b.end(), of_a[at_a]);
    const size_t detour = at_a + static_cast<size_t>(found - of_b.begin());
    if (found == of_b.end() || detour >= pair.detour) continue;
    pair.detour = detour;
    pair.ports.subnet = of_a[at_a];
  }
  return pair;
}

std::vector<Candidate> all_pairs(const std::vector<PortInfo>& a, const std::vector<PortInfo>& b) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j)
      if (a[i].link_layer == b[j].link_layer) all.push_back(pair_of(a, i, b, j));
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
  prefer(pairs, [](const Candidate& pair) { return !pair.ports.subnet.empty(); });
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
      return std::tuple(std::max(at_a, at_b), at_a + at_b, pair.detour);
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

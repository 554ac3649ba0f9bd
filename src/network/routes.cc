#include "network/routes.h"

#include <algorithm>
#include <cassert>

namespace ropewalk {

Routes::Routes(const Network& network)
    : network_(network),
      host_of_(network.host_of_rank()),
      exits_(static_cast<size_t>(network.node_count())),
      distances_(network.switches.size()) {
  for (const NetworkHost& host : network.hosts)
    for (int place = 0; place < host.ranks; ++place) place_of_.push_back(place);
  for (size_t i = 0; i < network.links.size(); ++i)
    for (const int side : {0, 1})
      exits_[static_cast<size_t>(network.links[i].ends[side])].push_back(
          {network.links[i].ends[1 - side], static_cast<LinkWay>(2 * i) + side});
}

const std::vector<uint16_t>& Routes::distances_to(int target) {
  const auto hosts = network_.host_count();
  std::vector<uint16_t>& distance = distances_[static_cast<size_t>(target - hosts)];
  if (!distance.empty()) return distance;
  distance.assign(network_.switches.size(), kFar);
  std::vector<int> reached{target};
  distance[static_cast<size_t>(target - hosts)] = 0;
  for (size_t i = 0; i < reached.size(); ++i)
    for (const Exit& exit : exits_[static_cast<size_t>(reached[i])]) {
      if (exit.node < hosts) continue;  // hosts hand nothing on
      uint16_t& there = distance[static_cast<size_t>(exit.node - hosts)];
      if (there != kFar) continue;
      there = static_cast<uint16_t>(distance[static_cast<size_t>(reached[i] - hosts)] + 1);
      reached.push_back(exit.node);
    }
  return distance;
}

const Routes::Exit& Routes::adapter_of(int rank) const {
  const auto& adapters = exits_[static_cast<size_t>(host_of(rank))];
  return adapters[static_cast<size_t>(place_of_[static_cast<size_t>(rank)]) % adapters.size()];
}

void Routes::find(int from, int to, std::vector<LinkWay>& path) {
  path.clear();
  const int hosts = network_.host_count(), target_host = host_of(to);
  if (host_of(from) == target_host) return;
  const auto step = [&](int node) { return static_cast<size_t>(node - hosts); };
  const Exit* out = &adapter_of(from);
  const Exit* in = &adapter_of(to);
  // Adapters may be on networks that do not meet: then others of the two hosts.
  const auto meet = [&] { return distances_to(in->node)[step(out->node)] != kFar; };
  for (const Exit& other : exits_[static_cast<size_t>(target_host)]) {
    if (meet()) break;
    in = &other;
  }
  for (const Exit& own : exits_[static_cast<size_t>(host_of(from))])
    for (const Exit& other : exits_[static_cast<size_t>(target_host)]) {
      if (meet()) break;
      out = &own;
      in = &other;
    }
  assert(meet());
  const std::vector<uint16_t>& distance = distances_to(in->node);
  path.push_back(out->way);
  for (int node = out->node; node != in->node;) {
    const auto& exits = exits_[static_cast<size_t>(node)];
    const auto nearer = [&](const Exit& exit) {
      return exit.node >= hosts && distance[step(exit.node)] + 1 == distance[step(node)];
    };
    const auto count = std::ranges::count_if(exits, nearer);
    auto turn = target_host % count;
    const auto chosen =
        std::ranges::find_if(exits, [&](const Exit& exit) { return nearer(exit) && turn-- == 0; });
    path.push_back(chosen->way);
    node = chosen->node;
  }
  path.push_back(in->way ^ 1);
}

}  // namespace ropewalk

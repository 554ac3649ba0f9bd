#include "network/routes.h"

#include <algorithm>
#include <cassert>

namespace ropewalk {
namespace {

/// Of so many switches it is kept how far each is from each: up to 1 GiB.
constexpr size_t kKeptSwitchesMax = 11'000;

}  // namespace

Routes::Routes(const Network& network)
    : network_(network),
      host_of_(network.host_of_rank()),
      exits_(static_cast<size_t>(network.node_count())) {
  const size_t switches = network.switches.size();
  searches_.resize(switches <= kKeptSwitchesMax ? switches : 1);
  for (const NetworkHost& host : network.hosts)
    for (int place = 0; place < host.ranks; ++place) place_of_.push_back(place);
  for (size_t i = 0; i < network.links.size(); ++i)
    for (const int side : {0, 1})
      exits_[static_cast<size_t>(network.links[i].ends[side])].push_back(
          {network.links[i].ends[1 - side], static_cast<LinkWay>(2 * i) + side});
}

Routes::Search& Routes::search_from(int target) {
  const bool keeps_all = searches_.size() > 1;
  Search& search = searches_[keeps_all ? static_cast<size_t>(target - network_.host_count()) : 0];
  if (search.target == target) return search;
  if (search.distance.empty()) search.distance.assign(network_.switches.size(), kFar);
  for (const int node : search.reached) distance_of(search, node) = kFar;
  search.target = target;
  search.reached = {target};
  search.next = 0;
  distance_of(search, target) = 0;
  return search;
}

bool Routes::reaches(int target, int source) {
  Search& search = search_from(target);
  uint32_t& of_source = distance_of(search, source);
  while (of_source == kFar && search.next < search.reached.size()) {
    const int node = search.reached[search.next++];
    for (const Exit& exit : exits_[static_cast<size_t>(node)]) {
      if (exit.node < network_.host_count()) continue;  // hosts hand nothing on
      uint32_t& there = distance_of(search, exit.node);
      if (there != kFar) continue;
      there = distance_of(search, node) + 1;
      search.reached.push_back(exit.node);
    }
  }
  return of_source != kFar;
}

const Routes::Exit& Routes::adapter_of(int rank) const {
  const auto& adapters = exits_[static_cast<size_t>(host_of(rank))];
  return adapters[static_cast<size_t>(place_of_[static_cast<size_t>(rank)]) % adapters.size()];
}

void Routes::find(int from, int to, std::vector<LinkWay>& path) {
  path.clear();
  const int hosts = network_.host_count(), target_host = host_of(to);
  if (host_of(from) == target_host) return;
  const Exit* out = &adapter_of(from);
  const Exit* in = &adapter_of(to);
  // Adapters may be on networks that do not meet: then others of the two hosts.
  const auto meet = [&] { return reaches(in->node, out->node); };
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
  [[maybe_unused]] const bool do_meet = meet();  // which also searches as far as here
  assert(do_meet);
  Search& search = search_from(in->node);
  path.push_back(out->way);
  for (int node = out->node; node != in->node;) {
    const auto& exits = exits_[static_cast<size_t>(node)];
    const auto nearer = [&](const Exit& exit) {
      return exit.node >= hosts && distance_of(search, exit.node) + 1 == distance_of(search, node);
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

// Racks: two_level, with groups of hosts that a slow link parts from the others in place of hosts.
// Such a link, be it the uplink of a rack or that of one slow host, carries 2 (g-1)/g of the vector
// each way for g groups, where a ring through all ranks carries 2 (n-1)/n.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

Bound bound(const ScheduleKey& key) {
  return two_level_all_reduce_bound(hosts_of(key.hosts, key.ranks));
}

/// Inside a group every rank sends what it does not own, through the port of its host, and then
/// hands out what it owns. Slices follow each other, so that all goes on at once.
double predict_s(const CostTerms& t, Collective) {
  if (t.described && t.racks > 1) return described_two_level_s(t, t.racks, t.rack_size);
  if (t.racks < 2) return descriptor_of(Algorithm::ring).predict_s(t, Collective::all_reduce);
  const double hops = 2 * (t.racks - 1), others = t.rack_size - 1;
  const double block = t.bytes / (t.racks * t.rack_size);
  const double across = hops / t.racks * t.bytes * t.across_s_per_byte;
  const double inside = 2 * others / t.rack_size * t.bytes * t.near.s_per_byte * t.all_cross;
  const double messages = (hops + 2 * others) * t.slices_of(block);
  return (hops + 2) * t.near.latency_s + messages * t.near.overhead_s + std::max(across, inside) +
         std::min(across, inside) / 4 + adding(t, t.bytes);
}

std::string passed_over(const Hosts& groups) {
  if (groups.count() > 1) return {};
  return "no link between hosts is known to be much slower than the others";
}

}  // namespace

AlgorithmDescriptor racks_algorithm() {
  return {
      .collectives = {Collective::all_reduce},
      .build = two_level_all_reduce,
      .bound = bound,
      .predict_s = predict_s,
      .blocks = [](Collective, const Hosts& groups) { return groups.size_max() * groups.count(); },
      .partners = two_level_partners,
      .list_order_credits = UINT32_MAX,
      .symmetry = symmetric_groups,
      .grouped_by = GroupedBy::racks,
      .passed_over = passed_over};
}

}  // namespace ropewalk

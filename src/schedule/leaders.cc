// Leaders: the first rank of each host adds up what the ranks of its host have, leaders exchange
// by recursive doubling, and hand the sum out. Short vectors cross the network in as few messages
// as there are hosts a round. (Called SMP-aware in MPICH and hierarchical in Open MPI's HAN.)
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

Schedule build(const ScheduleKey& key, int rank) {
  const Hosts hosts = hosts_of(key.hosts, key.ranks);
  const std::vector<int>& members = hosts.members[hosts.host_of[rank]];
  constexpr int kSum = 0, kIncoming = 1;
  Builder out(key, rank, 1, 1);
  if (rank != members[0]) {
    out.send_reduce(kSum, members[0]);
    out.recv_copy(kSum, members[0]);
    return out.take();
  }
  for (size_t i = 1; i < members.size(); ++i) out.recv_reduce(kSum, members[i]);
  std::vector<int> leaders;
  for (const std::vector<int>& host : hosts.members) leaders.push_back(host[0]);
  append_recursive_doubling(out, leaders, hosts.host_of[rank], kSum, kIncoming);
  for (size_t i = 1; i < members.size(); ++i) out.send_copy(kSum, members[i]);
  return out.take();
}

Bound bound(const ScheduleKey& key) {
  const Hosts hosts = hosts_of(key.hosts, key.ranks);
  const Bound between = recursive_doubling_bound(hosts.count());
  const int local = hosts.size_max();
  return {between.sent + local - 1, between.rounds + (local > 1 ? 2 : 0)};
}

double described_s(const CostTerms& t) {
  const double slices = t.slices_of(t.bytes), slice = t.bytes / slices, others = t.local - 1;
  const bool whole = t.is_whole(t.bytes);
  const double store = slice * t.inside.s_per_byte, post = t.inside.overhead_s + store;
  // Members' vectors are at hand: a leader adds them up before it hands on.
  const double in =
      (whole ? post : 2 * t.inside.overhead_s) + t.inside.latency_s + adding(t, others * t.bytes);
  const double out = others * post + t.inside.latency_s;
  const double hidden =
      slice * t.near.s_per_byte * recursive_doubling_bound(static_cast<int>(t.hosts)).rounds;
  return in + described_recursive_doubling_s(t, t.hosts, t.local) + out +
         (slices - 1) * std::max(others * post - hidden, 0.0);
}

double predict_s(const CostTerms& t, Collective) {
  if (t.described) return described_s(t);
  const double slices = t.slices_of(t.bytes), others = t.local - 1;
  const Bound between = recursive_doubling_bound(static_cast<int>(t.hosts));
  const double round = t.round() + slices * t.link.overhead_s + moving(t, t.bytes, 1);
  const double inside = others > 0 ? t.inside.latency_s + others * (slices * t.inside.overhead_s +
                                                                    t.bytes * t.inside.s_per_byte)
                                   : 0;
  return between.rounds * (round + adding(t, t.bytes)) + 2 * inside + adding(t, others * t.bytes);
}

/// Of equal groups of neighbours, where all sizes are powers of two.
Symmetry symmetry(Collective collective, const Hosts& hosts) {
  const Symmetry groups = symmetric_groups(collective, hosts);
  const int n = hosts.ranks();
  if (groups.kind == Symmetry::Kind::none || floor_power_of_two(n) != n) return {};
  return {Symmetry::Kind::exclusive_or, groups.unit};
}

std::string passed_over(const Hosts& hosts) {
  if (hosts.count() == 1) return "all ranks share one host, so there is one leader";
  if (hosts.size_max() == 1)
    return "no two ranks share a host, so recursive_doubling does the same";
  return {};
}

}  // namespace

AlgorithmDescriptor leaders_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, barrier},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = [](Collective, const Hosts&) { return 1; },
          .partners =
              [](Collective, const Hosts& hosts) {
                return hosts.size_max() - 1 + recursive_doubling_partners(hosts.count());
              },
          .symmetry = symmetry,
          .grouped_by = GroupedBy::hosts,
          .passed_over = passed_over};
}

}  // namespace ropewalk

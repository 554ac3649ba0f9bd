// Two levels: within a host every rank talks to every other, between hosts there are rings. In an
// all_reduce there are as many places as the largest host has ranks; a rank of a smaller one has
// several. Ranks of equal place form a ring, so that all ranks of a host drive its network at once.
// In the other collectives the first k ranks of each host own what passes the network, k being the
// size of the smallest.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// A block travels from host to host through the owners of place (its rank's place mod k); each
/// owner hands it on first and then to the rest of its host.
Schedule all_gather(const ScheduleKey& key, int rank) {
  const GroupView view(key, rank);
  const int n_hosts = view.groups.count();
  Builder out(key, rank, key.ranks);
  for (int t = 0; t < n_hosts; ++t) {
    const std::vector<int>& origins = view.members_of(view.group - t);
    for (int i = 0; i < static_cast<int>(origins.size()); ++i) {
      const int block = origins[i], carrier = i % view.owners;
      // The host's own blocks start at their ranks, the others at the carrier.
      const int source = t == 0 ? i : carrier;
      if (view.place != source)
        out.recv_copy(block, t == 0 ? block : view.member(source));
      else if (t > 0)
        out.recv_copy(block, view.owner_of(view.group - 1, carrier));
      if (view.place == carrier && t + 1 < n_hosts)
        out.send_copy(block, view.owner_of(view.group + 1, carrier));
      for (int other = 1; view.place == source && other < view.size; ++other)
        out.send_copy(block, view.member(source + other));
    }
  }
  return out.take();
}

/// all_gather backwards in time: sums travel towards the block's rank, each owner adding its
/// host's.
Schedule reduce_scatter(const ScheduleKey& key, int rank) {
  const GroupView view(key, rank);
  const int n_hosts = view.groups.count();
  Builder out(key, rank, key.ranks);
  for (int t = n_hosts - 1; t >= 0; --t) {
    const std::vector<int>& targets = view.members_of(view.group - t);
    for (int i = 0; i < static_cast<int>(targets.size()); ++i) {
      const int block = targets[i], carrier = i % view.owners;
      const int sink = t == 0 ? i : carrier;
      for (int other = 1; view.place == sink && other < view.size; ++other)
        if (t > 0 || wrap(sink + other, view.size) != carrier)
          out.recv_reduce(block, view.member(sink + other));
      if (view.place == carrier && t + 1 < n_hosts)
        out.recv_reduce(block, view.owner_of(view.group + 1, carrier));
      if (view.place == sink && t == 0 && sink != carrier)
        out.recv_reduce(block, view.member(carrier));
      if (view.place != sink)
        out.send_reduce(block, view.member(sink));
      else if (t > 0)
        out.send_reduce(block, view.owner_of(view.group - 1, carrier));
    }
  }
  return out.take();
}

/// A chain of one rank per host (the root in its own, the first elsewhere), each of which hands on
/// to the next host first and then to its own.
Schedule broadcast(const ScheduleKey& key, int rank) {
  const GroupView view(key, rank);
  const int n_hosts = view.groups.count();
  const int root_host = view.groups.host_of[key.root];
  const auto head_of = [&](int h) {
    return wrap(h, n_hosts) == root_host ? key.root : view.owner_of(h, 0);
  };
  const int distance = wrap(view.group - root_host, n_hosts), head = head_of(view.group);
  Builder out(key, rank, 1);
  if (rank != head) {
    out.recv_copy(0, head);
    return out.take();
  }
  if (distance > 0) out.recv_copy(0, head_of(view.group - 1));
  if (distance < n_hosts - 1) out.send_copy(0, head_of(view.group + 1));
  for (int i = 1; i < view.size; ++i) out.send_copy(0, view.member(view.place + i));
  return out.take();
}

Schedule build(const ScheduleKey& key, int rank) {
  switch (key.collective) {
    case Collective::all_gather:
      return all_gather(key, rank);
    case Collective::reduce_scatter:
      return reduce_scatter(key, rank);
    case Collective::broadcast:
      return broadcast(key, rank);
    default:
      return two_level_all_reduce(key, rank);
  }
}

/// An owner spreads in its host its own block and what comes in from elsewhere, and hands on what
/// the next host does not have: of each host at most its share, ceil(size / owners) blocks.
double all_gather_sent(const Hosts& hosts, int ranks) {
  const int k = hosts.size_min(), n_hosts = hosts.count();
  const auto size = [&](int h) { return static_cast<int>(hosts.members[wrap(h, n_hosts)].size()); };
  const auto share = [&](int h) { return (size(h) + k - 1) / k; };
  int all_shares = 0, sent_max = 0;
  for (int h = 0; h < n_hosts; ++h) all_shares += share(h);
  for (int h = 0; h < n_hosts; ++h) {
    const int spread = (size(h) - 1) * (1 + all_shares - share(h));
    const int handed_on = n_hosts > 1 ? all_shares - share(h + 1) : 0;
    sent_max = std::max(sent_max, spread + handed_on);
  }
  return static_cast<double>(sent_max) / ranks;
}

Bound bound(const ScheduleKey& key) {
  const Hosts hosts = hosts_of(key.hosts, key.ranks);
  const double n = key.ranks, k = hosts.size_min(), local = hosts.size_max();
  const int hops = hosts.count() - 1, inside = local > 1 ? 1 : 0;
  const int to_owner = hops > 0 && local > k ? 1 : 0;
  switch (key.collective) {
    case Collective::broadcast:
      return {local - 1 + (hops > 0 ? 1 : 0), hops + inside};
    case Collective::all_gather:
      return {all_gather_sent(hosts, key.ranks), hops + inside + to_owner};
    case Collective::reduce_scatter:
      return {(n - 1) / n, hops + inside + to_owner};
    default:
      return two_level_all_reduce_bound(hosts);
  }
}

double predict_s(const CostTerms& t, Collective collective) {
  if (t.described && collective == Collective::all_reduce)
    return described_two_level_s(t, t.hosts, t.local);
  // Then direct, or ring, does the same.
  if (t.hosts == 1) return descriptor_of(Algorithm::direct).predict_s(t, collective);
  if (t.local == 1) return descriptor_of(Algorithm::ring).predict_s(t, collective);
  const double hops = t.hosts - 1, inside = t.local > 1 ? 1 : 0;
  const double inside_byte = t.inside.s_per_byte;
  if (collective == Collective::broadcast) {
    const double slices = t.slices_of(t.bytes), slice = t.bytes / slices;
    const double stage = t.link.overhead_s + slice * t.link.s_per_byte;
    const double local = (t.local - 1) * (t.inside.overhead_s + slice * inside_byte);
    return hops * (t.link.latency_s + stage) + inside * t.inside.latency_s + local +
           (slices - 1) * std::max(stage, local);
  }
  // Per host 1/hosts of the vector a hop; the owners share the port. Inside, each rank sends what
  // it does not own, then an owner hands out what it does.
  const double owners = collective == Collective::all_reduce ? t.local : t.owners;
  const double part = t.bytes / t.hosts, block = part / owners;
  const double most = owners / t.owners;  // places of one rank
  const double posts = most * t.slices_of(block) * t.link.overhead_s;
  const double hop = t.link.latency_s + posts + part * t.link.s_per_byte;
  const double ring_one_way = hops * hop;
  const double messages = (t.local - 1) * t.hosts;
  const double local = inside * (t.inside.latency_s + messages * t.inside.overhead_s +
                                 (t.local - 1) / owners * t.bytes * inside_byte);
  const double add = (hops > 0 ? adding(t, hops * block * most) : 0) +
                     inside * adding(t, (t.local - 1) * t.bytes / owners);
  const double one_way = ring_one_way + local;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * one_way + add;
    case Collective::reduce_scatter:
      return one_way + add;
    default:
      return one_way;
  }
}

int blocks(Collective collective, const Hosts& hosts) {
  if (collective == Collective::broadcast) return 1;
  return collective == Collective::all_reduce ? hosts.size_max() * hosts.count() : hosts.ranks();
}

std::string passed_over(const Hosts& hosts) {
  if (hosts.count() == 1) return "all ranks share one host, so direct does the same";
  if (hosts.size_max() == 1) return "no two ranks share a host, so ring does the same";
  return {};
}

}  // namespace

void append_into_owners(Builder& out, const GroupView& view) {
  const int n_groups = view.groups.count();
  for (int i = 1; i < view.size; ++i)
    view.for_places_of(wrap(view.place + i, view.size), [&](int j) {
      for (int t = 1; t <= n_groups; ++t)
        out.send_reduce(view.block(j, view.group - t), view.member(j));
    });
  view.for_places_of(view.place, [&](int j) {
    for (int t = 1; t <= n_groups; ++t)
      for (int i = 1; i < view.size; ++i)
        out.recv_reduce(view.block(j, view.group - t), view.member(view.place - i));
  });
}

void append_out_of_owners(Builder& out, const GroupView& view) {
  for (int t = 0; t < view.groups.count(); ++t) {
    view.for_places_of(view.place, [&](int j) {
      for (int i = 1; i < view.size; ++i)
        out.send_copy(view.block(j, view.group - t), view.member(view.place + i));
    });
    for (int i = 1; i < view.size; ++i)
      view.for_places_of(wrap(view.place - i, view.size), [&](int j) {
        out.recv_copy(view.block(j, view.group - t), view.member(j));
      });
  }
}

Schedule two_level_all_reduce(const ScheduleKey& key, int rank) {
  const GroupView view(key, rank);
  const int n_hosts = view.groups.count();
  Builder out(key, rank, view.places * n_hosts);
  append_into_owners(out, view);
  // Between the hosts: the rings of this rank's places side by side.
  std::vector<Ring> rings;
  view.for_places_of(view.place, [&](int j) {
    Ring& ring = rings.emplace_back(Ring{{}, view.group, view.block(j, 0)});
    for (int h = 0; h < n_hosts; ++h) ring.members.push_back(view.owner_of(h, j));
  });
  for (int t = 1; t < n_hosts; ++t)
    for (const Ring& ring : rings) append_reduce_scatter_round(out, ring, t);
  for (int t = 0; t < n_hosts - 1; ++t)
    for (const Ring& ring : rings) append_all_gather_round(out, ring, t);
  append_out_of_owners(out, view);
  return out.take();
}

/// A rank sends what it does not own, its part of the rings, and what it owns to the others.
Bound two_level_all_reduce_bound(const Hosts& hosts) {
  const int places = hosts.size_max(), hops = hosts.count() - 1;
  const double ring = 2.0 * hops / hosts.count();
  double sent = 0;
  for (const std::vector<int>& members : hosts.members) {
    const int size = static_cast<int>(members.size());
    for (const int own : {places / size, (places + size - 1) / size})
      sent = std::max(sent, places - own + own * (ring + size - 1));
  }
  return {sent / places, 2 * (hops + (places > 1 ? 1 : 0))};
}

/// All that members send to owners is on its way before the rings begin, which all owners drive at
/// once; what rings bring is handed out while they go on.
double described_two_level_s(const CostTerms& t, double groups, double members) {
  const double within = std::min(t.local, members) - 1, between = members - 1 - within;
  const double block = t.bytes / (members * groups), slices = t.slices_of(block);
  const double slice = block / slices, slice_add = adding(t, slice), add = adding(t, block);
  const bool whole = t.is_whole(block);
  const double store = within * block * t.inside.s_per_byte;
  const double posts = between * t.near.overhead_s + within * t.inside.overhead_s;
  const double port = passing(t, block, t.local * between, 0);
  const double in_cpu =
      (whole ? 1 : 2 + slices) * posts + (whole ? store : 0) + (members - 1) * add;
  const double out_cpu = (whole ? 1 : 2 + slices) * posts + store;
  const double latency = between > 0 ? t.near.latency_s : t.inside.latency_s;
  const double hop = t.near.overhead_s + t.near.latency_s + passing(t, slice, 1, 1);
  const double crossing = passing(t, block, std::min(t.local, members), members);
  const double ring_cpu = (whole ? 1 : 2 + slices) * t.near.overhead_s;
  const double there = std::max({crossing, hop + slice_add, ring_cpu + add});
  const double back = std::max({crossing, hop, ring_cpu});
  const double out = std::max(port, out_cpu), rounds = groups - 1;
  const double own = passing(t, block, std::min(t.local, members), 0);
  // Rings begin behind what a stream's window holds of that; within a host there is none.
  const double first =
      whole || between == 0 ? 1 : std::max(1 / groups, std::min(t.window / (groups * slices), 1.0));
  const double in = std::max(port, in_cpu), behind = (1 - first) * groups * port + rounds * own;
  return first * groups * in + std::max(rounds * there, behind) +
         std::max({rounds * back + out / slices, groups * port + rounds * own,
                   groups * out_cpu + rounds * ring_cpu}) +
         2 * latency + (whole ? 0 : 2 * t.near.overhead_s + t.near.latency_s);
}

int two_level_partners(Collective collective, const Hosts& groups) {
  const int rings = collective == Collective::broadcast
                        ? 1
                        : (groups.size_max() + groups.size_min() - 1) / groups.size_min();
  const int neighbours = std::min(groups.count() - 1, 2);
  return std::min(groups.size_max() - 1 + rings * neighbours, groups.ranks() - 1);
}

AlgorithmDescriptor two_level_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, reduce_scatter, all_gather, broadcast},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = blocks,
          .partners = two_level_partners,
          .list_order_credits = UINT32_MAX,
          .symmetry = symmetric_groups,
          .grouped_by = GroupedBy::hosts,
          .passed_over = passed_over};
}

}  // namespace ropewalk

#include "schedule/bound.h"

#include <algorithm>

#include "schedule/builders.h"
#include "schedule/hosts.h"

namespace ropewalk {
namespace {

int ceil_log2(int n) {
  int rounds = 0;
  for (int power = 1; power < n; power *= 2) ++rounds;
  return rounds;
}

int floor_log2(int n) {
  return ceil_log2(floor_power_of_two(n));
}

/// `one_way`: what reduce_scatter and all_gather cost each; an all_reduce is both.
Bound once_or_twice(Collective collective, Bound one_way) {
  if (collective == Collective::all_reduce) return {2 * one_way.sent, 2 * one_way.rounds};
  return one_way;
}

Bound ring_bound(const ScheduleKey& key) {
  const bool chain =
      key.collective == Collective::broadcast || key.collective == Collective::reduce;
  return once_or_twice(key.collective,
                       {chain ? 1.0 : (key.ranks - 1.0) / key.ranks, key.ranks - 1});
}

Bound recursive_doubling_bound(const ScheduleKey& key) {
  const int n = key.ranks;
  if (key.collective == Collective::all_gather) return {(n - 1.0) / n, ceil_log2(n)};
  const bool folds = floor_power_of_two(n) != n;  // one message in, one message out
  return {floor_log2(n) + (folds ? 1.0 : 0.0), floor_log2(n) + (folds ? 2 : 0)};
}

Bound direct_bound(const ScheduleKey& key) {
  const double n = key.ranks;
  switch (key.collective) {
    case Collective::broadcast:
      return {n - 1, 1};
    case Collective::reduce:
      return {1, 1};
    case Collective::gather:
      return {1 / n, 1};
    default:
      return once_or_twice(key.collective, {(n - 1) / n, 1});
  }
}

/// An owner spreads in its host its own block and what comes in from elsewhere, and hands on what
/// the next host does not have: of each host at most its share, ceil(size / owners) blocks.
double two_level_all_gather_sent(const Hosts& hosts, int ranks) {
  const int k = hosts.size_min(), n_hosts = hosts.count();
  const auto size = [&](int h) {
    return static_cast<int>(hosts.members[static_cast<size_t>(wrap(h, n_hosts))].size());
  };
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

Bound two_level_bound(const ScheduleKey& key) {
  const Hosts hosts = hosts_of(key.hosts, key.ranks);
  const double n = key.ranks, h = hosts.count(), k = hosts.size_min(), local = hosts.size_max();
  const int hops = hosts.count() - 1, inside = local > 1 ? 1 : 0;
  const int to_owner = hops > 0 && local > k ? 1 : 0;
  switch (key.collective) {
    case Collective::broadcast:
      return {local - 1 + (hops > 0 ? 1 : 0), hops + inside};
    case Collective::all_gather:
      return {two_level_all_gather_sent(hosts, key.ranks), hops + inside + to_owner};
    case Collective::reduce_scatter:
      return {(n - 1) / n, hops + inside + to_owner};
    default: {
      const double owner = (k - 1) / k + 2 * (h - 1) / (h * k) + (local - 1) / k;
      return {local > k ? std::max(1.0, owner) : owner, 2 * (hops + inside)};
    }
  }
}

}  // namespace

Bound bound_of(const ScheduleKey& key) {
  if (key.ranks == 1) return {};
  switch (key.algorithm) {
    case Algorithm::ring:
      return ring_bound(key);
    case Algorithm::tree:
      return once_or_twice(key.collective, {1.0, 1 + floor_log2(key.ranks - 1)});
    case Algorithm::recursive_doubling:
      return recursive_doubling_bound(key);
    case Algorithm::halving_doubling:
      return once_or_twice(key.collective, {(key.ranks - 1.0) / key.ranks, ceil_log2(key.ranks)});
    case Algorithm::direct:
      return direct_bound(key);
    case Algorithm::two_level:
      return two_level_bound(key);
    case Algorithm::one_shot:
      return {key.ranks - 1.0, 1};
    case Algorithm::scattered: {
      // The root sends all parts but its own, and its own to all.
      const double n = key.ranks;
      return {(key.collective == Collective::broadcast ? 2 * (n - 1) : n) / n, 2};
    }
    case Algorithm::automatic:
      break;
  }
  return {};
}

}  // namespace ropewalk

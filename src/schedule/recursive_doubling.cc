// Recursive doubling: Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", 2005; all_gather for any number of ranks after Bruck et al. 1997.
#include <algorithm>
#include <numeric>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

Schedule all_reduce(const ScheduleKey& key, int rank) {
  std::vector<int> all(key.ranks);
  std::iota(all.begin(), all.end(), 0);
  Builder out(key, rank, 1, 1);
  append_recursive_doubling(out, all, rank, 0, 1);
  return out.take();
}

/// Before the round with skip s, a rank holds the s blocks from its own on; it passes them down by
/// s ranks and gets the next s from above. The last round moves what is left.
Schedule all_gather(const ScheduleKey& key, int rank) {
  const int n = key.ranks;
  Builder out(key, rank, n);
  for (int skip = 1; skip < n; skip *= 2)
    for (int i = 0; i < std::min(skip, n - skip); ++i) {
      out.send_copy(wrap(rank + i, n), wrap(rank - skip, n));
      out.recv_copy(wrap(rank + skip + i, n), wrap(rank + skip, n));
    }
  return out.take();
}

/// A barrier is an all_reduce whose block may be empty.
Schedule build(const ScheduleKey& key, int rank) {
  return key.collective == Collective::all_gather ? all_gather(key, rank) : all_reduce(key, rank);
}

Bound bound(const ScheduleKey& key) {
  const int n = key.ranks;
  if (key.collective == Collective::all_gather) return {(n - 1.0) / n, ceil_log2(n)};
  return recursive_doubling_bound(n);
}

/// An all_reduce. Ranks of a host exchange in the first rounds.
double described_s(const CostTerms& t) {
  return described_recursive_doubling_s(t, t.n, 1);
}

double predict_s(const CostTerms& t, Collective collective) {
  if (t.described && collective == Collective::all_reduce) return described_s(t);
  if (collective == Collective::all_gather)
    return t.bound.rounds * t.round() + (t.n - 1) * t.slices_of(t.bytes / t.n) * t.link.overhead_s +
           moving(t, t.bound.sent * t.bytes, t.all_cross) * t.colliding(t.bound.rounds, t.bytes);
  const double slices = t.slices_of(t.bytes);
  const double round = t.round() + slices * t.link.overhead_s + moving(t, t.bytes, t.all_cross);
  return t.bound.rounds * (round + adding(t, t.bytes));
}

int blocks(Collective collective, const Hosts& hosts) {
  return collective == Collective::all_gather ? hosts.ranks() : 1;
}

int partners(Collective collective, const Hosts& hosts) {
  if (collective != Collective::all_gather) return recursive_doubling_partners(hosts.ranks());
  // In each round one to send to, and one to receive from.
  return std::min(2 * ceil_log2(hosts.ranks()), hosts.ranks() - 1);
}

/// With a power of two partners are an exclusive or away.
Symmetry symmetry(Collective collective, const Hosts& hosts) {
  if (collective == Collective::all_gather) return {Symmetry::Kind::shift, 1};
  const bool folds = floor_power_of_two(hosts.ranks()) != hosts.ranks();
  return {folds ? Symmetry::Kind::none : Symmetry::Kind::exclusive_or, 1};
}

}  // namespace

int recursive_doubling_partners(int n) {
  return floor_log2(n) + (floor_power_of_two(n) != n ? 1 : 0);
}

void append_recursive_doubling(Builder& out, const std::vector<int>& members, int position, int sum,
                               int incoming) {
  const int n = static_cast<int>(members.size()), core = floor_power_of_two(n), extra = n - core;
  // The first 2 * extra members form pairs; the even one of a pair sits out the rounds.
  const bool paired = position < 2 * extra;
  if (paired && position % 2 == 0) {
    out.send_reduce(sum, members[position + 1]);
    out.recv_copy(sum, members[position + 1]);
    return;
  }
  if (paired) out.recv_reduce(sum, members[position - 1]);
  const int place = paired ? position / 2 : position - extra;
  for (int distance = 1; distance < core; distance *= 2) {
    const int other = place ^ distance;
    const int partner = members[other < extra ? 2 * other + 1 : other + extra];
    out.send_copy(sum, partner);
    out.recv_copy(incoming, partner);
    out.reduce(sum, incoming);
  }
  if (paired) out.send_copy(sum, members[position - 1]);
}

namespace {

/// What rounds take, one after the other.
struct DoublingRounds {
  double first = 0;  // of the first slice
  double pace = 0;   // of each further one

  double all(const CostTerms& t) const { return first + (t.slices_of(t.bytes) - 1) * pace; }
};

/// Whether ranks that differ in the bit of `distance` are always in one group of so many.
bool are_together(double group, double distance) {
  return static_cast<int>(group) % (2 * static_cast<int>(distance)) == 0;
}

/// A round between ranks `distance` apart, so many of which send from a host, and from a rack.
/// `grants`: long messages wait for the receiver's word.
void add_round(const CostTerms& t, double distance, double of_host, double of_rack, bool grants,
               DoublingRounds& rounds) {
  const double slice = t.bytes / t.slices_of(t.bytes);
  const bool inside = are_together(t.local, distance);
  const LinkCost& link = inside ? t.inside : t.near;
  const double far = are_together(t.rack_size, distance) ? 0 : std::min(of_rack, distance);
  const double port = inside ? 0 : passing(t, slice, std::max(of_host, 1.0), far);
  const double cpu = link.overhead_s + adding(t, slice) + (inside ? slice * link.s_per_byte : 0);
  rounds.first += cpu + port + link.latency_s;
  if (grants && !t.is_whole(t.bytes)) rounds.first += link.overhead_s + link.latency_s;
  rounds.pace += std::max(port, cpu);
}

}  // namespace

/// A long sum is granted when the one before it has been added. Pairs that fold begin one message
/// later than the others, whose sums are there when they meet: so the way into the first pair's sum
/// and on to the last rank, or out of another pair, is the longest.
double described_recursive_doubling_s(const CostTerms& t, double members, double step) {
  const int n = static_cast<int>(members), core = floor_power_of_two(n), extra = n - core;
  const auto pairs_of = [&](double group) { return group / (2 * step); };
  // Ranks of a group that meet a pair from elsewhere.
  const auto met_of = [&](double group) {
    return std::min(group / step, pairs_of(std::min(2 * step * extra, t.n - group)));
  };
  DoublingRounds to_last, to_pair;
  const auto add_pairs_round = [&](double distance, bool grants, DoublingRounds& rounds) {
    add_round(t, distance, pairs_of(t.local), pairs_of(t.rack_size), grants, rounds);
  };
  if (extra > 0) {
    add_pairs_round(step, true, to_last);
    to_pair = to_last;
    add_pairs_round(step, false, to_pair);
  }
  int count = extra > 0 ? 1 : 0;
  double distance = extra > 0 ? 2 * step : step;
  for (int place = 1; place < core; place *= 2, distance *= 2, ++count) {
    const bool grants = extra == 0 || place > 1;
    if (place < extra) {
      add_pairs_round(distance, grants, to_last);
      add_pairs_round(distance, grants, to_pair);
      continue;
    }
    if (extra > 0)
      add_round(t, distance, met_of(t.local), met_of(t.rack_size), grants, to_last);
    else
      add_round(t, distance, t.local / step, t.rack_size / step, grants, to_last);
    to_pair.first += t.near.overhead_s + adding(t, t.bytes / t.slices_of(t.bytes));
  }
  const double told = (count - 1) * t.link.overhead_s - t.link.latency_s;
  return std::max(to_last.all(t), extra > 0 ? to_pair.all(t) : 0) +
         (t.is_whole(t.bytes) ? 0 : std::max(t.link.overhead_s, told));
}

Bound recursive_doubling_bound(int n) {
  const bool folds = floor_power_of_two(n) != n;  // one message in, one message out
  return {floor_log2(n) + (folds ? 1.0 : 0.0), floor_log2(n) + (folds ? 2 : 0)};
}

AlgorithmDescriptor recursive_doubling_algorithm() {
  using enum Collective;
  return {.collectives = {all_reduce, all_gather, barrier},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = blocks,
          .partners = partners,
          .symmetry = symmetry};
}

}  // namespace ropewalk

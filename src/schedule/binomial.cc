// Binomial tree: gather and scatter with few partners (Thakur, Rabenseifner and Gropp,
// "Optimization of collective communication operations in MPICH", 2005). Places count from the
// root. The parent of a place is the place without its lowest set bit, 2^k; the subtree of a place
// is that place and the 2^k - 1 after it. A rank hands on the parts of its subtree.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// As a rank sees it.
struct Tree {
  int n, root;

  int rank_at(int place) const { return wrap(root + place, n); }
  static int low_bit(int place) { return place & -place; }
  int parent(int place) const { return place - low_bit(place); }
  /// After the last place of its subtree.
  int end(int place) const { return place == 0 ? n : std::min(place + low_bit(place), n); }
  /// The smallest subtree first.
  std::vector<int> children(int place) const {
    std::vector<int> below;
    for (int bit = 1; place + bit < end(place); bit *= 2) below.push_back(place + bit);
    return below;
  }
};

/// Parts leave in the order in which they arrive, so that they follow each other without a gap.
void append_gather(Builder& out, const Tree& tree, int place) {
  const int parent = tree.rank_at(tree.parent(place));
  if (place > 0) out.send_copy(tree.rank_at(place), parent);
  for (int child : tree.children(place))
    for (int part = child; part < tree.end(child); ++part) {
      out.recv_copy(tree.rank_at(part), tree.rank_at(child));
      if (place > 0) out.send_copy(tree.rank_at(part), parent);
    }
}

/// The parts that have furthest to go first: the same backwards.
void append_scatter(Builder& out, const Tree& tree, int place) {
  const int parent = tree.rank_at(tree.parent(place));
  std::vector<int> children = tree.children(place);
  std::ranges::reverse(children);
  for (int child : children)
    for (int part = tree.end(child) - 1; part >= child; --part) {
      if (place > 0) out.recv_copy(tree.rank_at(part), parent);
      out.send_copy(tree.rank_at(part), tree.rank_at(child));
    }
  if (place > 0) out.recv_copy(tree.rank_at(place), parent);
}

Schedule build(const ScheduleKey& key, int rank) {
  const Tree tree{key.ranks, key.root};
  const int place = wrap(rank - key.root, key.ranks);
  Builder out(key, rank, key.ranks);
  if (key.collective == Collective::gather)
    append_gather(out, tree, place);
  else
    append_scatter(out, tree, place);
  return out.take();
}

/// A scatter's root sends all parts but its own, a gather's busiest rank those of its subtree.
Bound bound(const ScheduleKey& key) {
  const int n = key.ranks, top = floor_power_of_two(n - 1);
  const int most = key.collective == Collective::scatter ? n - 1 : std::max(n - top, top / 2);
  return {static_cast<double>(most) / n, floor_log2(n)};
}

/// The root's port moves all parts but its own; the first or the last of them goes all the way.
double predict_s(const CostTerms& t, Collective) {
  const double block = t.bytes / t.n, others = t.n - 1;
  const double hop = t.link.overhead_s + moving(t, block, 1);
  return others * (t.slices_of(block) * t.link.overhead_s + moving(t, block, 1)) +
         t.bound.rounds * (t.round() + hop);
}

}  // namespace

AlgorithmDescriptor binomial_algorithm() {
  return {.collectives = {Collective::gather, Collective::scatter},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .partners = [](Collective, const Hosts& hosts) { return ceil_log2(hosts.ranks()); },
          .held = 0.5,  // the largest subtree
          .passed_over = passed_over_unless_many};
}

}  // namespace ropewalk

// Double binary tree: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast,
// reduction and scan", 2009. Each half of the vector has a tree of its own. The root stands above
// both trees; the other n-1 ranks stand in them such that who has children in one tree has none in
// the other, so nobody sends more than the vector once up and once down.
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

/// One of the two trees as a rank sees it. Places are 0 for the root and 1 .. m = n-1 for the
/// others, in-order: an odd place is a leaf, and the subtree of a place with lowest set bit h spans
/// the places less than h away.
struct Tree {
  int ranks, root, which;

  int m() const { return ranks - 1; }
  // The second tree is the first one mirrored (m even) or shifted by one (m odd): either turns
  // even places into odd ones.
  int place_of(int rank) const {
    const int p = wrap(rank - root, ranks);
    if (which == 0 || p == 0) return p;
    return m() % 2 == 0 ? m() + 1 - p : p % m() + 1;
  }
  int rank_at(int place) const {
    int p = place;
    if (which == 1 && place > 0) p = m() % 2 == 0 ? m() + 1 - place : wrap(place - 2, m()) + 1;
    return wrap(root + p, ranks);
  }
  int parent(int place) const {
    const int low = place & -place;
    const int up = (place ^ low) | (low << 1);
    return up <= m() ? up : place ^ low;
  }
  std::vector<int> children(int place) const {
    if (place == 0) return {floor_power_of_two(m())};
    std::vector<int> below;
    int half = (place & -place) / 2;
    if (half > 0) below.push_back(place - half);
    while (half > 0 && place + half > m()) half /= 2;  // the last subtree may be cut short
    if (half > 0) below.push_back(place + half);
    return below;
  }
};

void append_tree(Builder& out, Collective collective, const Tree& tree, int rank) {
  const int place = tree.place_of(rank), block = tree.which, lane = tree.which;
  const int parent = place > 0 ? tree.rank_at(tree.parent(place)) : -1;
  const std::vector<int> children = tree.children(place);
  if (collective != Collective::broadcast) {
    for (int child : children) out.recv_reduce(block, tree.rank_at(child), lane);
    if (place > 0) out.send_reduce(block, parent, lane);
  }
  if (collective != Collective::reduce) {
    if (place > 0) out.recv_copy(block, parent, lane);
    for (int child : children) out.send_copy(block, tree.rank_at(child), lane);
  }
}

Schedule build(const ScheduleKey& key, int rank) {
  const int root = key.collective == Collective::all_reduce ? 0 : key.root;
  Builder out(key, rank, 2);
  for (int which : {0, 1}) append_tree(out, key.collective, Tree{key.ranks, root, which}, rank);
  return out.take();
}

Bound bound(const ScheduleKey& key) {
  return once_or_twice(key.collective, {1.0, 1 + floor_log2(key.ranks - 1)});
}

/// An all_reduce. Ranks that run it in list order go through one tree after the other.
double described_s(const CostTerms& t) {
  const double half = t.bytes / 2, slices = t.slices_of(half), slice = half / slices;
  const double levels = t.bound.rounds / 2;
  const double inside =
      t.local > 1 ? std::min<double>(floor_log2(static_cast<int>(t.local)), levels) : 0;
  const double two = passing(t, 2 * slice, 1, 1), add = adding(t, slice);
  const double above = t.near.overhead_s + t.near.latency_s + two;
  const double below = 2 * (t.inside.overhead_s + slice * t.inside.s_per_byte) + t.inside.latency_s;
  const double through = 2 * ((levels - inside) * above + inside * below) + levels * add;
  if (t.is_whole(half)) return 2 * (through + (levels - inside) * t.near.overhead_s);
  // Halves meet: those that go up in a tree and down in the other. How often, and how much of the
  // adding is hidden, is fitted to what is simulated.
  const double meeting = t.local > 1 ? 1.4 : 1.25;
  const double cpu = 3.5 * add + (t.hosts > 1 ? 0 : 2 * slice * t.inside.s_per_byte);
  return through + (slices - 1) * std::max(2 * two * meeting, cpu) + 2 * t.link.overhead_s +
         t.link.latency_s;
}

/// Two halves, each through its tree, a slice at a time; a rank with two children serves one after
/// the other. Once the first slices are down, the others follow at the pace of the ports.
double predict_s(const CostTerms& t, Collective collective) {
  if (t.described && collective == Collective::all_reduce) return described_s(t);
  const int rounds = t.bound.rounds;
  const double half = t.bytes / 2, slices = t.slices_of(half), slice = half / slices;
  const double both = collective == Collective::all_reduce ? 2 : 1;
  const double first = 2 * (t.link.overhead_s + moving(t, slice, 1));
  const bool adds = collective != Collective::broadcast;
  // The port of a broadcast's root lets one half pass before the other: where the first tree is
  // through, the second is half-way.
  const double in_turn = !adds && t.hosts > 1 ? 1.5 : 1;
  // Two parents send to a rank at once.
  const double next =
      2 * (t.link.overhead_s + moving(t, slice, t.all_cross) * t.colliding(2, slice) * in_turn);
  return rounds * (t.round() + first) + both * (slices - 1) * next +
         (adds ? adding(t, rounds / both * slice + t.bytes) : 0);
}

}  // namespace

AlgorithmDescriptor tree_algorithm() {
  using enum Collective;
  return {
      .collectives = {all_reduce, broadcast, reduce},
      .build = build,
      .bound = bound,
      .predict_s = predict_s,
      .blocks = [](Collective, const Hosts&) { return 2; },
      // A parent and two children in each of both trees.
      .partners = [](Collective, const Hosts& hosts) { return std::min(6, hosts.ranks() - 1); }};
}

}  // namespace ropewalk

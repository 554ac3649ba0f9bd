// Which ranks behave alike on a network, so that running one of them is enough.
//
// An algorithm says which ranks do the same (Symmetry). On the network they behave alike where
// their messages take links that are alike, too: links are put into classes with the links that
// like messages take, and each of a class must be taken by the same messages, once by each. Then by
// induction over events, in the order that simulate_call.cc gives them, like things happen at like
// times.
#pragma once

#include "network/routes.h"
#include "schedule/algorithm.h"

namespace ropewalk {

struct RankSymmetry {
  Symmetry::Kind kind = Symmetry::Kind::none;
  int ranks = 1;
  int period = 1;  // rank r behaves as rank `first_like(r)`, which is less than this
  std::vector<int32_t> link_class;  // by LinkWay: one that stands for those like it

  int first_like(int rank) const { return rank % period; }
  /// What is to `first_like(from)` as `rank` is to `from`.
  int map_rank(int from, int rank) const {
    const int by = from - first_like(from);
    if (kind == Symmetry::Kind::exclusive_or) return rank ^ by;
    return (rank - by + ranks) % ranks;
  }
};

/// Of a schedule whose first ranks, as many as are said not to be alike, are `first`. Where more
/// than `ways_max` ways are to be looked up none are alike.
RankSymmetry find_symmetry(Routes& routes, const ScheduleKey& key, const Symmetry& symmetry,
                           const std::vector<Schedule>& first, uint64_t ways_max);
/// All differ.
RankSymmetry no_symmetry(const Network& network);

}  // namespace ropewalk

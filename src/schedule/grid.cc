// Grid: groups of ranks are the rows, and the ranks of equal place in all groups the columns. The
// vector is added up in the rows, then in the columns, and goes the same way back: four rounds, and
// about 2 sqrt(n) partners where direct has n - 1. For many ranks of one host, whose groups share a
// cache or memory. (Two-dimensional all-to-all exchange: Bruck and others 1997; in rounds of direct
// exchange, as the two-level all-pairs algorithms of MSCCL++.)
#include <algorithm>

#include "schedule/builders.h"

namespace ropewalk {
namespace {

Schedule build(const ScheduleKey& key, int rank) {
  const GroupView view(key, rank);
  const int rows = view.groups.count();
  Builder out(key, rank, view.places * rows);
  append_into_owners(out, view);
  view.for_places_of(view.place, [&](int j) {
    for (int t = 1; t < rows; ++t)
      out.send_reduce(view.block(j, view.group + t), view.owner_of(view.group + t, j));
    for (int t = 1; t < rows; ++t)
      out.recv_reduce(view.block(j, view.group), view.owner_of(view.group - t, j));
  });
  view.for_places_of(view.place, [&](int j) {
    for (int t = 1; t < rows; ++t)
      out.send_copy(view.block(j, view.group), view.owner_of(view.group + t, j));
    for (int t = 1; t < rows; ++t)
      out.recv_copy(view.block(j, view.group - t), view.owner_of(view.group - t, j));
  });
  append_out_of_owners(out, view);
  return out.take();
}

Bound bound(const ScheduleKey& key) {
  const Hosts rows = hosts_of(key.hosts, key.ranks);
  const int rounds = (rows.count() > 1 ? 1 : 0) + (rows.size_max() > 1 ? 1 : 0);
  return {two_level_all_reduce_bound(rows).sent, 2 * rounds};
}

/// Both exchanges are as direct's, of a vector, and of what a rank owns of it.
double predict_s(const CostTerms& t, Collective) {
  const double others = t.row_size - 1, above = t.rows - 1;
  const double part = t.bytes / t.row_size, block = part / t.rows;
  const double messages = 2 * (others * t.rows + above) * t.slices_of(block);
  const double moved = (others * part + above * block) * t.inside.s_per_byte;
  return 2 * t.bound.rounds * t.inside.latency_s + messages * t.inside.overhead_s +
         adding(t, others * part + above * block) + (t.mapped ? 1 : 2) * moved;
}

std::string passed_over(const Hosts& rows) {
  if (rows.count() > 1) return {};
  return "the ranks are few, or on several hosts";
}

}  // namespace

AlgorithmDescriptor grid_algorithm() {
  return {.collectives = {Collective::all_reduce},
          .build = build,
          .bound = bound,
          .predict_s = predict_s,
          .blocks = [](Collective, const Hosts& rows) { return rows.size_max() * rows.count(); },
          .partners =
              [](Collective, const Hosts& rows) {
                const int places = (rows.size_max() + rows.size_min() - 1) / rows.size_min();
                return std::min(rows.size_max() - 1 + places * (rows.count() - 1),
                                rows.ranks() - 1);
              },
          .list_order_credits = UINT32_MAX,
          .symmetry = symmetric_groups,
          .grouped_by = GroupedBy::rows,
          .passed_over = passed_over};
}

}  // namespace ropewalk

#include "tests/support/cases.h"

#include "schedule/algorithm.h"

namespace ropewalk::testing {

bool may_be_uneven(const Case& c) {
  return c.collective != Collective::all_to_all ||
         (!c.in_place && !descriptor_of(c.algorithm).needs_equal_parts);
}

std::vector<Case> cases_of_every_size(int ranks) {
  std::vector<Case> cases;
  size_t turn = 0;
  for (Collective collective : kMovingCollectives)
    for (Algorithm algorithm : algorithms_for(collective))
      for (size_t count : {size_t{0}, size_t{1}, size_t{1021}, size_t{70001}})
        for (bool in_place : {false, true}) {
          Case c{collective,
                 algorithm,
                 static_cast<DataType>(turn % kDataTypes),
                 ReduceKind::sum,
                 ranks,
                 count,
                 static_cast<int>(turn % static_cast<size_t>(ranks)),
                 in_place,
                 turn % 3 == 0};
          c.uneven &= may_be_uneven(c);
          cases.push_back(c);
          ++turn;
        }
  return cases;
}

std::vector<Case> cases_of_every_kind(int ranks) {
  constexpr size_t kCount = 37;
  std::vector<Case> cases;
  for (Collective collective : kMovingCollectives)
    for (Algorithm algorithm : algorithms_for(collective))
      for (int type = 0; type < kDataTypes; ++type)
        for (int op = 0; op < (is_reduction(collective) ? kReduceKinds : 1); ++op)
          for (bool in_place : {false, true}) {
            const Case c{collective,
                         algorithm,
                         static_cast<DataType>(type),
                         static_cast<ReduceKind>(op),
                         ranks,
                         kCount,
                         op % ranks,
                         in_place,
                         false};
            if (c.op == ReduceKind::scaled_sum && !is_floating(c.type)) continue;
            cases.push_back(c);
          }
  return cases;
}

}  // namespace ropewalk::testing

// What each algorithm may cost at most, in the terms of its paper.
#pragma once

#include "schedule/schedule.h"

namespace ropewalk {

struct Bound {
  /// The most that any rank sends, as a fraction of the whole vector (for reduce_scatter,
  /// all_gather, gather, scatter and all_to_all: of all ranks' parts together).
  double sent = 0;
  /// The longest chain of messages each of which is sent because of the one before.
  int rounds = 0;
};

Bound bound_of(const ScheduleKey& key);

}  // namespace ropewalk

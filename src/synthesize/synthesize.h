// Schedules that are made for a network: as many spanning trees at once as its links allow, each
// for its part of the vector (ForestColl, arXiv 2402.06787; synthesize/forest.h). Data goes to the
// root of its tree, added up on the way, or from it, or both.
#pragma once

#include <string>
#include <vector>

#include "network/routes.h"
#include "schedule/verify.h"
#include "synthesize/problem.h"
#include "synthesize/spread.h"

namespace ropewalk {

struct Synthesized {
  std::vector<Schedule> schedules;  // by rank
  ScheduleKey key;
  Promise promise;
  int trees = 0;  // as many as there are blocks
  int depth = 0;  // messages from a root to the farthest rank
  int steps = 0;  // of the rank that has the most
  // Seconds a byte of the whole vector:
  double least_s_per_byte = 0;  // that no schedule can do without
  double busy_s_per_byte = 0;   // of the busiest link
  LinkWay busiest = 0;
  double proof_s = 0;  // that the verifier took
};

/// Trees, of which schedules are written.
struct Forest {
  Spread spread;
  double least_s_per_byte = 0;
  ScheduleKey key;
};

/// Of all_reduce, all_gather, reduce_scatter, broadcast and reduce. The same for equal arguments.
/// Throws Error: unavailable where there is nothing to gain from it (another collective, one host,
/// links without limits), exhausted where there are too many ranks, or too many hosts of which no
/// two are alike.
Forest make_forest(Routes& routes, Collective collective, int root);
/// All ranks' schedules, which the verifier has proven: the forest `chunks` times, one after the
/// other for parts of the vector, no rank more than `chunks_ahead` of them ahead of the others.
/// Requires 1 <= chunks <= chunks_max, and 1 <= chunks_ahead.
Synthesized write_schedules(const Forest& forest, int chunks, int chunks_ahead);
/// Where latencies are short beside a chunk.
inline constexpr int kChunksAhead = 4;
/// 1 except for an all_reduce.
int chunks_max(const Forest& forest);
inline constexpr int kChunksMax = 512;
/// Both, with as many chunks as there may be.
Synthesized synthesize(Routes& routes, Collective collective, int root);
inline constexpr int kSynthesizedRanksMax = 2048;

/// Whether this build can: without Boost.Graph `make_forest` throws Error(unavailable).
bool can_synthesize();

}  // namespace ropewalk

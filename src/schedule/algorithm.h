// What the project knows of each algorithm, in one place: its builder, its bound, its predicted
// cost. To add one: a file here that defines `NAME_algorithm()`, and NAME in ROPEWALK_ALGORITHMS
// (ropewalk/types.h). `ropewalk verify` then proves it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/cost.h"
#include "schedule/hosts.h"
#include "schedule/schedule.h"

namespace ropewalk {

/// What a schedule may cost at most, in the terms of the algorithm's paper.
struct Bound {
  /// The most that any rank sends, as a fraction of the whole vector (for reduce_scatter,
  /// all_gather, gather, scatter and all_to_all: of all ranks' parts together).
  double sent = 0;
  /// The longest chain of messages each of which is sent because of the one before.
  int rounds = 0;
};

/// All functions are pure, and for two ranks or more.
struct AlgorithmDescriptor {
  /// Those that it implements, for any number of ranks and any root.
  std::vector<Collective> collectives;
  Schedule (*build)(const ScheduleKey& key, int rank);
  Bound (*bound)(const ScheduleKey& key);
  /// The closed form of the cost model, in seconds. Only + - * / and comparisons: the result must
  /// be the same on every rank.
  double (*predict_s)(const CostTerms& terms, Collective collective);
  /// Into how many blocks the vector is cut; null: one per rank.
  int (*blocks)(Collective collective, const Hosts& hosts) = nullptr;
  /// How many messages a stream must hold for ranks that run their steps strictly in list order.
  uint32_t list_order_credits = 5;
  /// The schedule depends on which ranks share a host.
  bool uses_hosts = false;
  /// Why the planner passes it over; empty where it does not. Null: it never does.
  std::string (*passed_over)(const Hosts& hosts) = nullptr;
};

/// `algorithm` is not `automatic`.
const AlgorithmDescriptor& descriptor_of(Algorithm algorithm);

/// Of `key.algorithm`; nothing for one rank.
Bound bound_of(const ScheduleKey& key);

// One per algorithm, each in a file of its own.
#define ROPEWALK_DECLARE_ALGORITHM(name) AlgorithmDescriptor name##_algorithm();
ROPEWALK_ALGORITHMS(ROPEWALK_DECLARE_ALGORITHM)
#undef ROPEWALK_DECLARE_ALGORITHM

}  // namespace ropewalk

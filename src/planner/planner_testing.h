// What the planner's tests ask.
#pragma once

#include <cstddef>

#include "planner/planner.h"

namespace ropewalk {

inline constexpr size_t kKiB = 1 << 10, kMiB = 1 << 20;

/// `ranks` ranks on hosts of `per_host`.
inline PlanRequest request(Collective collective, size_t bytes, int ranks, int per_host) {
  PlanRequest q;
  q.collective = collective;
  q.bytes = bytes;
  q.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) q.hosts.push_back(rank / per_host);
  q.cost.intra = {.latency_s = 150e-9, .overhead_s = 20e-9, .s_per_byte = 65e-12};  // as of memory
  q.cost.inter = {.latency_s = 8e-6, .overhead_s = 2e-6, .s_per_byte = 230e-12};    // as of TCP
  return q;
}

inline Algorithm chosen(const PlanRequest& q) {
  return choose(q).algorithm;
}

/// One rank a host; links as measured at 200 Mbit/s.
inline PlanRequest slow_network(size_t bytes, int hosts) {
  PlanRequest q = request(Collective::all_reduce, bytes, hosts, 1);
  q.cost.inter = {.latency_s = 100e-6, .overhead_s = 20e-6, .s_per_byte = 42e-9};
  return q;
}

inline double predicted_us(const PlanDecision& decision, Algorithm algorithm) {
  for (const Candidate& candidate : decision.candidates)
    if (candidate.algorithm == algorithm) return candidate.predicted_us;
  return 0;
}

}  // namespace ropewalk

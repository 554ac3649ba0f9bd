// The steps of all ranks as one precedence graph, for the verifier and the simulator. Encodes what
// schedule.h says about order: blocks, FIFOs, and which receive a send belongs to.
#pragma once

#include <span>

#include "schedule/schedule.h"

namespace ropewalk {

/// Nodes are steps: rank r's step i is node first[r] + i. Steps must be well formed: peers, blocks
/// and lanes in range.
struct StepGraph {
  static constexpr uint32_t kNone = UINT32_MAX;

  std::vector<uint32_t> first;            // by rank; one entry more than ranks
  std::vector<int32_t> rank_of;           // by node
  std::vector<uint32_t> partner;          // the receive of a send and vice versa; kNone: none
  std::vector<uint32_t> fifo_next;        // the next step of the same FIFO
  std::vector<uint32_t> stream_position;  // how many steps of its FIFO come before it
  // Nodes that must wait for node i because they touch its block, in compressed rows:
  // after[after_begin[i]] .. after[after_begin[i + 1] - 1].
  std::vector<uint32_t> after_begin, after;

  uint32_t nodes() const { return first.back(); }
  std::span<const uint32_t> waiting_on(uint32_t node) const {
    return {after.data() + after_begin[node], after.data() + after_begin[node + 1]};
  }
};

StepGraph graph_of(std::span<const Schedule> schedules);

}  // namespace ropewalk

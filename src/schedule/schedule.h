// A collective algorithm as plain data.
//
// A Schedule is what one rank does: a list of steps over numbered blocks. It holds no pointers and
// no byte counts, so one schedule serves every length and type. The engine runs it, the verifier
// (verify.h) proves it for all ranks together, the planner prices it.
//
// Meaning:
// - Steps on one block run in list order (two sends of one block may overlap; a step that writes a
//   block waits for the sends of it listed before). Steps on different blocks may overlap.
// - Sends and receives match in list order per (peer, lane). Each (peer, lane, direction) is a
//   stream: its steps run in list order.
// - send_copy matches recv_copy; send_reduce matches recv_reduce.
// - List order of recv_reduce on a block fixes the order of the sum.
//
// Blocks: `blocks` data blocks, then `scratch` scratch blocks private to the rank. Scratch block
// (blocks + i) is as long as data block (i mod blocks). What a data block stands for depends on the
// collective:
//   all_reduce, broadcast, reduce, barrier: block b is the b-th of `blocks` nearly equal parts
//   reduce_scatter, all_gather, gather, scatter: `blocks` is a multiple k of `ranks`; blocks
//     [r k, (r+1) k) are the k nearly equal pieces of rank r's part   (k = 1 unless said otherwise)
//   all_to_all: block d < n is this rank's part for rank d (input); block n + s is the part from
//     rank s (output). Blocks r and n + r are joined by a local copy outside the schedule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/collective.h"

namespace ropewalk {

enum class StepOp : uint8_t {
  send_copy,    // the peer stores the block
  send_reduce,  // the peer adds the block to its own
  recv_copy,    // block = incoming
  recv_reduce,  // block = block (+) incoming
  reduce,       // local: block = block (+) from
};

struct Step {
  StepOp op;
  uint8_t lane = 0;
  int32_t peer = -1;  // rank in the group; -1 for local steps
  int32_t block = 0;
  int32_t from = -1;  // `reduce` only: the block added

  bool operator==(const Step&) const = default;
};
constexpr bool is_send(StepOp op) {
  return op == StepOp::send_copy || op == StepOp::send_reduce;
}
constexpr bool is_recv(StepOp op) {
  return op == StepOp::recv_copy || op == StepOp::recv_reduce;
}

/// Lanes a schedule may use: 0 .. kLanes-1. Fixed: the wire protocol carries it in 1 bit.
inline constexpr int kLanes = 2;

struct Schedule {
  int ranks = 1;
  int rank = 0;
  int blocks = 1;
  int scratch = 0;
  std::vector<Step> steps;
  /// By data block: the rank through which all of the block's data passes. Every message of the
  /// block has its owner at one end, and the owner sends the block on only when it has received all
  /// that it will. Where memory is mapped, owners alone do all the work (engine/owner_program.h).
  /// Empty where a schedule has no such ranks.
  std::vector<int> owners;
  /// A send waits until all steps that stand so many places before it in the list have ended, so
  /// that a rank does not get ahead of the others, and keep links from what they wait for. 0: it
  /// waits for nothing but its block. Requires that schedules run in list order with one credit
  /// (verify.h): then nothing waits in a circle. May differ from rank to rank.
  int steps_ahead_max = 0;
  /// Of all ranks' schedules, where they were made for a network: ranks compare it. Else 0.
  uint64_t digest = 0;
};

/// Everything a builder may look at. Pure: equal keys give equal schedules on every rank.
struct ScheduleKey {
  Collective collective = Collective::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  int ranks = 1;
  int root = 0;            // broadcast, reduce, gather, scatter
  std::vector<int> hosts;  // host number of each rank; empty: every rank its own

  bool operator==(const ScheduleKey&) const = default;
};

/// The schedule of `rank`. `key.algorithm` must be one of `algorithms_for(key.collective)`.
Schedule build_schedule(const ScheduleKey& key, int rank);

/// A hash of all that is in them but `digest` and `steps_ahead_max` (docs/protocol.md,
/// "Signature").
uint64_t digest_of(const std::vector<Schedule>& schedules);

/// Whether the collective adds up data, or only moves it.
constexpr bool is_reduction(Collective collective) {
  return traits_of(collective).reduces;
}

/// The algorithms that implement a collective, for any number of ranks and any root, and of which
/// `build_schedule` makes schedules. Not send/recv.
const std::vector<Algorithm>& algorithms_for(Collective collective);
/// Whether it is one of them, or would be if the network were known. Not `automatic`.
bool implements(Algorithm algorithm, Collective collective);

}  // namespace ropewalk

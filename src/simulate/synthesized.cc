#include "simulate/synthesized.h"

#include <algorithm>
#include <bit>

#include "base/clock.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

// As short as the planner has them for chains, as what is received is handed on, and the last ones
// of all trees are still under way when all else has arrived.
constexpr size_t kTreeSlicesMax = 128;
constexpr double kTreeSlice_s = 200e-6;
constexpr size_t kTreeSliceMin = 16 << 10, kTreeSliceMax = 512 << 10;
// Blocks are at least this part of a slice long, where there are several chunks.
constexpr size_t kChunksOfSlice = 2;

/// Of a long block.
size_t least_slice_bytes(const PlanRequest& request) {
  const double bytes = kTreeSlice_s / std::max(request.cost.inter.s_per_byte, 1e-15);
  if (bytes >= static_cast<double>(kTreeSliceMax)) return kTreeSliceMax;
  return std::max(std::bit_floor(static_cast<size_t>(bytes)), kTreeSliceMin);
}

/// Seconds that so much of each block of a chunk keeps the busiest link.
double chunk_s(const Forest& forest, double block_bytes) {
  return forest.spread.s_per_byte * forest.spread.blocks * block_bytes;
}

/// Of a block, where there are several chunks. So long that a chunk takes no less than a message's
/// latency: of a stream a few blocks may be under way.
double least_block_bytes(const PlanRequest& request, const Forest& forest) {
  const auto bytes = static_cast<double>(least_slice_bytes(request) / kChunksOfSlice);
  return std::max(bytes, forest.spread.latency_s / std::max(chunk_s(forest, 1), 1e-15));
}

}  // namespace

size_t tree_slice_bytes(const PlanRequest& request, const Synthesized& made) {
  const size_t block = request.bytes / static_cast<size_t>(made.trees);
  const size_t wanted =
      std::max(std::bit_floor(block / kTreeSlicesMax), least_slice_bytes(request));
  const size_t slices = std::max<size_t>((block + wanted - 1) / wanted, 1);
  return (block / slices / 64 + 1) * 64;
}

int chunks_for(const PlanRequest& request, const Forest& forest) {
  const size_t block = std::bit_floor(request.bytes) / static_cast<size_t>(forest.spread.blocks);
  const auto most = static_cast<size_t>(chunks_max(forest));
  const double wanted = static_cast<double>(block) / least_block_bytes(request, forest);
  const size_t chunks = std::bit_floor(static_cast<size_t>(wanted));
  return static_cast<int>(std::clamp<size_t>(chunks, 1, most));
}

int chunks_ahead_for(const PlanRequest& request, const Forest& forest) {
  const double through_s = 2 * forest.spread.depth * forest.spread.latency_s;
  const double least_s = chunk_s(forest, least_block_bytes(request, forest));
  return kChunksAhead + static_cast<int>(through_s / std::max(least_s, 1e-15));
}

CallToSimulate call_for(const PlanRequest& request, const Synthesized& made) {
  CallToSimulate call;
  call.key = made.key;
  call.bytes = request.bytes;
  call.slice_bytes = tree_slice_bytes(request, made);
  call.eager_bytes_max = eager_bytes_max(request.mapped, request.spreads);
  call.schedules = &made.schedules;
  return call;
}

SimulatedSynthesis simulate_synthesized(Routes& routes, const PlanRequest& request,
                                        const SimulationWay& way) {
  SimulatedSynthesis simulated;
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  try {
    Forest forest = make_forest(routes, request.collective, request.root);
    simulated.made =
        write_schedules(forest, chunks_for(request, forest), chunks_ahead_for(request, forest));
    simulated.trees = forest.spread.blocks;
    simulated.tree_messages = std::move(forest.spread.messages);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted && error.code() != ErrorCode::unavailable) throw;
    simulated.why_not = error.failure().reason;
    return simulated;
  }
  simulated.made_s = 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
  simulate_made(routes, request, simulated, way);
  return simulated;
}

void simulate_made(Routes& routes, const PlanRequest& request, SimulatedSynthesis& simulated,
                   const SimulationWay& way) {
  CallToSimulate call = call_for(request, simulated.made);
  call.event_by_event = way.event_by_event;
  call.in_list_order = way.in_list_order;
  if (way.in_list_order) call.eager_bytes_max = SIZE_MAX;
  simulated.slice_bytes = call.slice_bytes;
  try {
    simulated.call = simulate_call(routes, call);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    simulated.why_not = error.failure().reason;
  }
}

}  // namespace ropewalk

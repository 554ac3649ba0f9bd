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
/// Shorter ones are tried as long as a link takes so many overheads for one, and there are not too
/// many to simulate. An overhead that was not measured may be told too short.
constexpr double kSliceOverheads = 5, kOverheadMin_s = 1e-6;
constexpr uint64_t kTriedMessagesMax = 300'000;
constexpr double kWorthCutting = 0.98;

std::vector<size_t> shorter_slices(const LinkCost& link, size_t slice) {
  const double bytes = kSliceOverheads * std::max(link.overhead_s, kOverheadMin_s) /
                       std::max(link.s_per_byte, 1e-15);
  std::vector<size_t> shorter;
  if (bytes >= static_cast<double>(slice)) return shorter;
  const size_t least = std::max(std::bit_ceil(static_cast<size_t>(bytes)), kTreeSliceMin);
  while (slice > least) {
    slice = std::max(std::bit_floor(slice) / 4, least);
    shorter.push_back(slice);
  }
  return shorter;
}

}  // namespace

size_t tree_slice_bytes(const PlanRequest& request, const Synthesized& made) {
  const size_t block = request.bytes / static_cast<size_t>(made.trees);
  const double bytes = kTreeSlice_s / std::max(request.cost.inter.s_per_byte, 1e-15);
  size_t least = kTreeSliceMax;
  if (bytes < static_cast<double>(kTreeSliceMax))
    least = std::max(std::bit_floor(static_cast<size_t>(bytes)), kTreeSliceMin);
  const size_t wanted = std::max(std::bit_floor(block / kTreeSlicesMax), least);
  return std::min(wanted, (block / 64 + 1) * 64);
}

SimulatedSlices simulate_slices(Routes& routes, const PlanRequest& request, const Synthesized& made,
                                const SimulationWay& way) {
  const size_t longest = tree_slice_bytes(request, made);
  CallToSimulate call = call_for(request, made, longest);
  call.event_by_event = way.event_by_event;
  call.in_list_order = way.in_list_order;
  if (way.in_list_order) call.eager_bytes_max = SIZE_MAX;
  SimulatedSlices best{.slice_bytes = longest, .call = simulate_call(routes, call)};
  if (way.in_list_order) return best;
  const uint64_t messages = best.call.messages;
  for (const size_t slice : shorter_slices(request.cost.inter, longest)) {
    if (messages * (longest / slice) > kTriedMessagesMax) break;
    call.slice_bytes = slice;
    SimulatedCall tried = simulate_call(routes, call);
    if (tried.seconds() < kWorthCutting * best.call.seconds())
      best = {.slice_bytes = slice, .shorter = true, .call = std::move(tried)};
  }
  return best;
}

CallToSimulate call_for(const PlanRequest& request, const Synthesized& made, size_t slice_bytes) {
  CallToSimulate call;
  call.key = made.key;
  call.bytes = request.bytes;
  call.slice_bytes = slice_bytes;
  call.schedules = &made.schedules;
  return call;
}

SimulatedSynthesis simulate_synthesized(Routes& routes, const PlanRequest& request,
                                        const SimulationWay& way) {
  SimulatedSynthesis simulated;
  const MonotonicClock clock;
  const int64_t begin_ns = clock.now_ns();
  try {
    simulated.made = synthesize(routes, request.collective, request.root);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted && error.code() != ErrorCode::unavailable) throw;
    simulated.why_not = error.failure().reason;
    return simulated;
  }
  simulated.made_s = 1e-9 * static_cast<double>(clock.now_ns() - begin_ns);
  try {
    SimulatedSlices sliced = simulate_slices(routes, request, simulated.made, way);
    simulated.slice_bytes = sliced.slice_bytes;
    simulated.call = std::move(sliced.call);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::exhausted) throw;
    simulated.why_not = error.failure().reason;
  }
  return simulated;
}

}  // namespace ropewalk

#include "simulate/repetition.h"

#include <bit>

#include "ropewalk/status.h"

namespace ropewalk {
namespace {

/// Steps after the last one that is looked at, on which that depends, or which depend on it.
constexpr uint32_t kAhead = 16;
/// Rounds from one look to the next.
constexpr uint32_t kLookRounds = 8;
/// Picoseconds of a repetition, so that two fit into a time beside all that is run.
constexpr double kSkippedMax = 2e18;

}  // namespace

void Repetition::start_next() {
  seen_ = {};
  looks_ = 0;
  if (number_ == in_.repeated.size()) {
    until_ = 0;
    return;
  }
  rounds_ = in_.repeated[number_++];
  base_ = rounds_.begin;
  marker_ = base_ + kRoundSteps * kLookRounds - 1;
  until_ = rounds_.end;
}

void Repetition::look_closer(SimulationState& state) {
  base_ = marker_ + 1;
  marker_ += kRoundSteps * kLookRounds;
  // Not found until the end: what is left of it cannot be looked at.
  has_failed_ |= marker_ >= until_;
  std::vector<int64_t> now;
  if (has_failed_ || !describe(state, now)) return;
  if (!seen_.state.empty() && now == seen_.state &&
      rounds_.left_out % ((base_ - seen_.base) / kRoundSteps) == 0) {
    skip(state);
    return;
  }
  // Brent's: whatever repeats is found from the first of twice as many looks on.
  if (std::has_single_bit(++looks_))
    seen_ = {base_, std::move(now), state.now_ps, state.messages, state.cpus, state.links};
}

void Repetition::skip(SimulationState& state) {
  const auto times = static_cast<int64_t>(rounds_.left_out / ((base_ - seen_.base) / kRoundSteps));
  if (static_cast<double>(times) * static_cast<double>(state.now_ps - seen_.now_ps) > kSkippedMax)
    throw Error(ErrorCode::exhausted, "simulate", "it takes longer than times can be told",
                "ask for fewer bytes, or faster links");
  skipped_ps_ += times * (state.now_ps - seen_.now_ps);
  state.messages += static_cast<uint64_t>(times) * (state.messages - seen_.messages);
  for (size_t i = 0; i < state.cpus.size(); ++i)
    state.cpus[i].used_ps += times * (state.cpus[i].used_ps - seen_.cpus[i].used_ps);
  for (size_t i = 0; i < state.links.size(); ++i) {
    state.links[i].used_ps += times * (state.links[i].used_ps - seen_.links[i].used_ps);
    state.links[i].bytes +=
        static_cast<double>(times) * (state.links[i].bytes - seen_.links[i].bytes);
  }
  start_next();
}

/// False: some of what is under way is outside of these rounds.
bool Repetition::describe(const SimulationState& state, std::vector<int64_t>& out) {
  if (lowest_.empty()) {
    lowest_.resize(in_.ranks());
    for (uint32_t i = 0; i < in_.streams.size(); ++i)
      while (streams_first_.size() <= in_.streams[i].rank) streams_first_.push_back(i);
    streams_first_.push_back(static_cast<uint32_t>(in_.streams.size()));
  }
  for (uint32_t rank = 0; rank < in_.ranks(); ++rank)
    if (!describe_rank(state, rank, out)) return false;
  for (const CpuState& cpu : state.cpus)
    out.push_back(std::max<int64_t>(cpu.free_ps - state.now_ps, 0));
  for (const LinkState& link : state.links)
    out.push_back(std::max<int64_t>(link.free_ps - state.now_ps, 0));
  describe_events(state, out);
  return true;
}

bool Repetition::describe_rank(const SimulationState& state, uint32_t rank,
                               std::vector<int64_t>& out) {
  const uint32_t first = in_.step_first[rank];
  uint32_t& lowest = lowest_[rank];
  while (first + lowest < in_.step_first[rank + 1] && state.done[first + lowest] == slices_)
    ++lowest;
  uint32_t highest = lowest;  // that is looked at
  const auto base = static_cast<int64_t>(base_);
  for (uint32_t i = streams_first_[rank]; i < streams_first_[rank + 1]; ++i) {
    const SimulatedStream& stream = in_.streams[i];
    const StreamState& at = state.streams[i];
    const bool grants = grants_ && !stream.sending;
    for (const uint32_t head : {at.head, grants ? at.grant_head : at.head}) {
      if (head == stream.count) return false;
      const uint32_t step = in_.in_streams[stream.first + head] - first;
      highest = std::max(highest, step);
      out.push_back(static_cast<int64_t>(step) - base);
    }
    for (const uint32_t count : {at.slice, at.grants_open, at.unread, at.owed, at.arrived,
                                 at.window_used, uint32_t{at.announced}})
      out.push_back(count);
  }
  if (lowest < rounds_.begin || highest + kAhead >= rounds_.end) return false;
  out.push_back(static_cast<int64_t>(lowest) - base);
  for (uint32_t step = lowest; step <= highest; ++step) out.push_back(state.done[first + step]);
  return true;
}

void Repetition::describe_events(const SimulationState& state, std::vector<int64_t>& out) {
  std::vector<SimulatedEvent> events = state.events;
  std::ranges::sort(events, std::greater());
  for (const SimulatedEvent& event : events) {
    out.push_back(event.ps - state.now_ps);
    out.push_back(static_cast<int64_t>(event.key) - static_cast<int64_t>(base_));
    out.push_back(std::max<int64_t>(event.tail_ps - state.now_ps, 0));
    out.push_back(event.slice);
    out.push_back(in_.rank_of[event.step]);
    out.push_back(static_cast<int64_t>(in_.local(event.step)) - static_cast<int64_t>(base_));
  }
}

}  // namespace ropewalk

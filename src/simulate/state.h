// What a simulation has come to: events to come, and how far streams, CPUs and links are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace ropewalk {

/// Events run in the order of (time, key, slice, rank). The key of an event is the same in all
/// ranks that are alike, and its generation comes first: how many events of the same time led to
/// it. So what happens at one time is the same set however many of the ranks are run, and no two
/// events of it that touch one thing have equal keys.
struct SimulatedEvent {
  int64_t ps;
  uint64_t key;     // as event_key makes it
  int64_t tail_ps;  // of a hop: when the last byte is there, at the earliest
  uint32_t slice;
  uint32_t step;

  bool operator>(const SimulatedEvent& other) const {
    if (ps != other.ps) return ps > other.ps;
    if (key != other.key) return key > other.key;
    return slice != other.slice ? slice > other.slice : step > other.step;
  }
};
/// In the order in which those of one time and generation run.
enum class EventKind : uint8_t {
  hop,  // a message reaches a link of its way
  arrived,
  left,
  worked,
  granted,
  announced,
  consumed,
  credited,
};

// Bits of a key, from the highest: 12 of the generation, 3 of the kind, 21 of the hop, 28 of the
// step, which ranks that are alike number alike.
inline constexpr int kGenerationShift = 52, kKindShift = 49, kHopShift = 28;
inline constexpr uint64_t kGenerationMax = 0xfff,
                          kHopsMax = uint64_t{1} << (kKindShift - kHopShift),
                          kNumberedStepsMax = uint64_t{1} << kHopShift;

inline uint64_t event_key(uint64_t generation, EventKind kind, uint32_t hop, uint32_t step) {
  return generation << kGenerationShift | static_cast<uint64_t>(kind) << kKindShift |
         uint64_t{hop} << kHopShift | step;
}
inline EventKind kind_of(uint64_t key) {
  return static_cast<EventKind>(key >> kKindShift & 7);
}
inline uint32_t hop_of(uint64_t key) {
  return static_cast<uint32_t>(key >> kHopShift & (kHopsMax - 1));
}

struct StreamState {
  uint32_t head = 0;         // first step not yet issued (sending) or finished (receiving)
  uint32_t slice = 0;        // of that step: issued, or taken
  uint32_t grant_head = 0;   // receiving: first step not yet granted
  uint32_t grants_open = 0;  // sending: at hand; receiving: given and not used up
  uint32_t unread = 0;       // sending: messages without credit; receiving: that have arrived
  uint32_t owed = 0;         // receiving: credits
  uint32_t arrived = 0;      // receiving: slices not yet taken
  uint32_t window_used = 0;  // sending
  bool announced = false;    // the step at the head
};

struct CpuState {
  int64_t free_ps = 0, used_ps = 0;
};
struct LinkState {
  int64_t free_ps = 0, used_ps = 0;
  double bytes = 0;
};

struct SimulationState {
  int64_t now_ps = 0;
  std::vector<uint32_t> done;  // slices, by step
  std::vector<StreamState> streams;
  std::vector<CpuState> cpus;
  std::vector<LinkState> links;  // by LinkWay
  uint64_t messages = 0;
  std::vector<SimulatedEvent> events;  // a heap

  void push(const SimulatedEvent& event) {
    events.push_back(event);
    std::ranges::push_heap(events, std::greater());
  }
  SimulatedEvent pop() {
    std::ranges::pop_heap(events, std::greater());
    const SimulatedEvent event = events.back();
    events.pop_back();
    return event;
  }
};

}  // namespace ropewalk

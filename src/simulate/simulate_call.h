// How long a call takes on a described network: all ranks run their schedules by the rules of the
// engine's executors (engine/executors.h), event by event.
//
// Costs are LogGP's: a message keeps its sender's CPU for an overhead, then each link of its way
// for its bytes; a link serves one message at a time, in order of arrival, and hands on from the
// first byte (cut through). Control messages (announcements, grants, notices) take latency, and the
// first two an overhead; they are urgent, and keep no link. Times are whole picoseconds, so that
// equal sums are equal however they are made.
//
// All blocks are taken to be equally long, buffers to be registered and used in place, and ranks of
// a host to map each other's memory. What a message costs is in the description of the network
// alone. The owner executor, of jobs on one host, is not simulated: such calls run pipelined.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/wire.h"
#include "network/routes.h"
#include "schedule/algorithm.h"

namespace ropewalk {

/// A slice, or a short message, whose first byte leaves its sender.
struct SimulatedMessage {
  int from, to;
  int lane, block;
  double bytes;
  double posted_s, arrived_s;  // arrived: its last byte
  bool added;                  // to what the receiver has; else stored
};

/// Each takes some 130 bytes: 4 GB.
inline constexpr uint64_t kSimulatedStepsMax = 30'000'000;
inline constexpr uint64_t kSimulatedMessagesMax = 400'000'000;

struct CallToSimulate {
  ScheduleKey key;
  size_t bytes = 0;                             // as in a PlanRequest
  size_t slice_bytes = 256 << 10;               // as the planner says
  size_t eager_bytes_max = kSentEagerBytesMax;  // SIZE_MAX: nothing is announced, sliced or granted
  /// Each rank does one step after the other, as with short messages; sends wait for nothing.
  bool in_list_order = false;
  /// All ranks one by one, though some behave alike. The result is the same.
  bool event_by_event = false;
  /// More steps, times slices, of the ranks that are run are refused.
  uint64_t messages_max = kSimulatedMessagesMax;
  std::function<void(const SimulatedMessage&)> on_message = {};  // of the ranks that are run
  /// By rank, in place of those of `key.algorithm`. They run in list order with one credit.
  const std::vector<Schedule>* schedules = nullptr;
};

struct LinkLoad {
  LinkWay way = 0;
  double busy_s = 0;
  double bytes = 0;
};

struct SimulatedCall {
  int64_t ps = 0;               // until the last rank is done
  int64_t added_ps = 0;         // until the last addition is done; 0: nothing is added
  int64_t cpu_ps = 0;           // that of the busiest rank was used
  uint64_t messages = 0;        // with data, of all ranks
  uint64_t events = 0;          // that were run
  int ranks_run = 0;            // the others do the same as one of these
  std::vector<LinkLoad> links;  // busiest first; of links that do the same, one

  double seconds() const { return 1e-12 * static_cast<double>(ps); }
  bool operator==(const SimulatedCall& other) const {
    return ps == other.ps && added_ps == other.added_ps && cpu_ps == other.cpu_ps &&
           messages == other.messages;
  }
};

/// Throws Error(exhausted) where there are too many steps, or slices, for memory and patience.
SimulatedCall simulate_call(Routes& routes, const CallToSimulate& call);

/// No schedule takes less on this network, whatever it does: the bytes that have to pass the links
/// of hosts and of racks, and the messages one after the other that tell a rank of all others.
double least_seconds(const Network& network, Collective collective, int root, size_t bytes);

}  // namespace ropewalk

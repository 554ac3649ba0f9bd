// Who has failed: one place that learns of dead ranks, aborts and mismatches, and tells everybody.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ropewalk/status.h"
#include "ropewalk/types.h"

namespace ropewalk {

inline constexpr const char* kNetworkAdvice = "look at the network between the two hosts";

/// The rank that number `in_job` of the job has among `members`; -1: none.
inline int rank_among(const std::vector<int>& members, int in_job) {
  const auto found = std::ranges::find(members, in_job);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

/// The collectives that a rank had called when it left.
struct CallsMade {
  uint32_t count = 0;
  uint32_t digest = 0;  // CallHistory's (engine/wire.h): differs where one of the calls does
  std::string last;     // "broadcast(4 float32, root 0, ...)"; empty where there is none

  bool operator==(const CallsMade&) const = default;
};

/// An operation under way on a rank, and the peers that it waits for there.
struct Wait {
  static constexpr uint8_t kPeersMax = 16;  // of more, the first: enough to follow

  Collective operation{};
  uint8_t channel = 0;    // of a message
  uint32_t sequence = 0;  // of the collective, or of the message on its channel
  bool any = false;       // for a message of any rank: no operation, no peers
  bool awaited = false;   // a caller waits for its end; else it goes on beside what the rank does
  int64_t since_ns = 0;
  int64_t until_ns = 0;  // others are told of it until then; 0: as long as it is noted
  std::array<int, kPeersMax> peers{};
  uint8_t peer_count = 0;

  std::span<const int> waits_for() const { return std::span(peers).first(peer_count); }
  bool operator==(const Wait&) const = default;
};
/// Of a rank: what it tells others of, at most.
inline constexpr size_t kWaitsMax = 128;
/// Of a rank in a part, of which there may be many.
inline constexpr size_t kPartWaitsMax = 4;

/// What a rank has said of itself when it was last asked.
struct RankWaits {
  int64_t heard_ns = 0;     // on this rank's clock; 0: it has not answered
  uint32_t calls = 0;       // collectives that it had started, modulo 2^32
  std::vector<Wait> waits;  // none: it is in its program, or asleep
};

/// What to do about ranks whose calls differ.
inline constexpr const char* kMismatchAdvice =
    "every rank must make the same calls, with the same counts, types, ops and roots, in the same "
    "order";

/// Thread-safe. The first failure wins and never changes afterwards.
class Monitor {
 public:
  virtual ~Monitor() = default;
  /// The job's failure as this rank knows it, or null. One atomic load: made for polling loops.
  /// `peer` is the culprit where there is one. Valid as long as the monitor.
  virtual const Failure* failure() const noexcept = 0;
  /// Makes `failure` the job's: kept here unless there is one already, and spread to every rank.
  virtual void report(const Failure& failure) = 0;
  /// As `report`, of a connection, which all communicators of the job share.
  virtual void report_lost(const Failure& failure) { report(failure); }
  /// As `report`, where nothing says that `failure.peer` has ended: it answers nothing any more.
  /// Asks first which hosts can be reached, for 2 s at most; where its own cannot, the failure
  /// names all ranks of those that cannot. Returns at once; harmless when repeated.
  virtual void report_silent(const Failure& failure) { report(failure); }
  /// True once `peer` has announced an orderly leave.
  virtual bool has_left(int peer) const noexcept = 0;
  /// What `peer` had called, once it has left.
  virtual std::optional<CallsMade> calls_of(int /*peer*/) const { return {}; }
  /// This rank has started so many collectives, modulo 2^32.
  virtual void note_calls(uint32_t /*calls*/) noexcept {}
  /// What this rank waits for from now on, at most kWaitsMax: others are told when they ask, also
  /// while this rank's threads get no CPU. Allocates nothing.
  virtual void note_waits(std::span<const Wait> /*waits*/) {}
  /// Asks all ranks what they wait for. Returns at once; harmless when repeated.
  virtual void ask_who_waits() {}
  /// The answers, by rank; empty where there are none. This rank's own is among them only where it
  /// has asked or was asked.
  virtual std::vector<RankWaits> waits() const { return {}; }
  /// A descriptor that is readable once failure() is set or a peer leaves; or -1. An eventfd: it
  /// stays readable until somebody reads its 8 bytes, which whoever sleeps on it should do after a
  /// leave.
  virtual int event_fd() const noexcept = 0;
  /// The number of a rank of the job in the epoch that this is of, for messages; where it has none
  /// its own.
  virtual int rank_in_epoch(int rank_in_job) const { return rank_in_job; }
};

}  // namespace ropewalk

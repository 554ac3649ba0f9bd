// Who has failed: one place that learns of dead ranks, aborts and mismatches, and tells everybody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ropewalk/status.h"

namespace ropewalk {

inline constexpr const char* kNetworkAdvice = "look at the network between the two hosts";

/// The collectives that a rank had called when it left.
struct CallsMade {
  uint32_t count = 0;
  uint32_t digest = 0;  // CallHistory's (engine/wire.h): differs where one of the calls does
  std::string last;     // "broadcast(4 float32, root 0, ...)"; empty where there is none
};

/// A rank that has not started what another waits for.
struct RankBehind {
  int rank = -1;
  uint32_t calls = 0;  // collectives that it had started when it was asked
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
  /// Asks all ranks whether they have started collective `sequence` (the first is 0). Returns at
  /// once; harmless when repeated.
  virtual void ask_who_is_behind(uint32_t /*sequence*/) {}
  /// Who has said of late that it had not, by rank.
  virtual std::vector<RankBehind> behind(uint32_t /*sequence*/) const { return {}; }
  /// A descriptor that is readable once failure() is set or a peer leaves; or -1. An eventfd: it
  /// stays readable until somebody reads its 8 bytes, which whoever sleeps on it should do after a
  /// leave.
  virtual int event_fd() const noexcept = 0;
};

}  // namespace ropewalk

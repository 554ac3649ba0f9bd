// The agreements of a job whose ranks are all on one host, in memory that they share: no messages,
// and no thread but the caller's.
//
// Memory that survives its writers makes consensus simple (Herlihy, "Wait-Free Synchronization",
// 1991): each rank writes what it brings into a register of its own. Whoever collects that of all
// who live writes a decision, and makes it the agreement's by compare-and-swap. Who goes on, and
// when, is as in bootstrap/agreement.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/clock.h"
#include "bootstrap/agreement.h"

namespace ropewalk::bootstrap {

/// Threads: one at a time, except for `wake` and `close`.
class HostAgreements {
 public:
  static constexpr int kRanksMax = 64;
  /// Of the memory of a job of `size`; 0 where that has too many ranks.
  static size_t bytes(int size);
  /// `memory` has so many bytes, 64-byte aligned, zeroes before anybody uses it. `lives` tells of a
  /// rank whether its process takes part still; once it says no it does for ever.
  HostAgreements(std::byte* memory, int size, int rank, std::function<bool(int)> lives);

  /// As World::agree.
  AgreementEnd agree(Agreement::Setup setup, int64_t deadline_ns, const Clock& clock);
  /// Somebody's process has ended: those who wait look again. Any thread.
  void wake();
  /// This rank takes part no more. Any thread.
  void close();

  // The steps of `agree`.
  void begin(Agreement::Setup setup, int64_t deadline_ns);
  /// The end, once it is there.
  std::optional<AgreementEnd> advance(int64_t now_ns);
  /// When `advance` has something to do though nothing has happened.
  int64_t wake_at_ns() const { return wake_at_ns_; }

 private:
  struct SharedState;
  struct Registers;
  Registers& registers(int rank) const;  // for this instance
  std::atomic_ref<uint64_t> decided() const;
  bool has_ended(int rank) const;
  void collect();
  bool is_complete(int64_t now_ns) const;
  void propose(uint64_t before);
  AgreementEnd end_with(uint64_t decided);
  AgreementEnd end_without();
  void sleep(int64_t now_ns) const;

  SharedState* const shared_;
  const int size_, rank_;
  const std::function<bool(int)> lives_;
  uint32_t instance_ = 0;  // that was begun last
  Agreement::Setup setup_;
  int64_t deadline_ns_ = 0;
  int64_t wake_at_ns_ = 0;
  uint32_t events_seen_ = 0;
  std::map<int, Contribution> brought_;  // by rank that lives
  std::set<int> ended_;
};

}  // namespace ropewalk::bootstrap

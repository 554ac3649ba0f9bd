// Where lost ranks of an elastic job are started again: in their own slot where their host is still
// there, else in a free slot of another. Hosts without an agent, spare ones and those that were
// lost, are dialled when slots are missing.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "tools/launcher/launcher_state.h"
#include "tools/launcher/ranks.h"

namespace ropewalk::tools {

/// So often a host is dialled in vain, after pauses that grow to the longest, until it is given up.
inline constexpr int kDialsMax = 30;
inline constexpr std::chrono::seconds kDialPauseMin{1}, kDialPauseMax{60};

/// Plain bookkeeping over hosts and ranks of a launcher, which does what it says.
class Restarts {
 public:
  struct RankSlot {
    int lost;  // the number of the rank that is started again
    int host;
    int slot;
  };

  Restarts(std::vector<Host>& hosts, const Ranks& ranks) : hosts_(hosts), ranks_(ranks) {}

  /// For ranks that are lost now, before any of them is wanted.
  Ranks::Room room() const;
  /// These are to be started again. Hosts that were given up are tried again.
  void want(const std::vector<int>& lost, Host::Time now);
  /// The next that can be started, in its order; it does not wait any more.
  std::optional<RankSlot> next();
  const std::vector<int>& waiting() const { return waiting_; }
  void forget() { waiting_.clear(); }

  /// One to dial now; null: none.
  Host* host_to_dial(Host::Time now);
  /// When there may be one, where there is none now.
  std::optional<Host::Time> next_dial() const;
  /// It was lost, or dialled in vain.
  void note_lost(Host& host, Host::Time now);
  /// True once: those that wait can only wait until a host that was lost is back.
  bool become_stuck();

 private:
  using Slots = std::vector<std::vector<bool>>;  // by host and slot: whether it is free

  Slots free_slots() const;
  int missing_slots() const;
  bool may_be_dialled(const Host& host) const;
  bool is_expected(const Host& host) const;

  std::vector<Host>& hosts_;
  const Ranks& ranks_;
  std::vector<int> waiting_;
  bool is_stuck_ = false;
};

}  // namespace ropewalk::tools

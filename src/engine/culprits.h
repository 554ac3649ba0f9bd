// Whom a wait that lasted too long is for in the end: follows who waits for whom, over all ranks,
// to those that wait for nobody. All ranks find the same, from the same answers.
//
// In a collective a rank waits for the peers that its schedule waits for, and for all who have not
// called it. One who has called it waits there in turn. Anybody else is late for whatever another
// wait of its caller holds it up in; and where there is none it is a culprit: it computes, sleeps,
// or hangs. Who came to its wait only lately was elsewhere before, and is a culprit, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/monitor.h"

namespace ropewalk {

/// What is known of a rank. Times are those of one clock.
struct KnownRank {
  bool known = false;  // has answered of late
  bool left = false;   // waits for nobody any more
  uint32_t calls = 0;
  std::vector<Wait> waits;
};

/// Rank `rank` waits in `wait` for `peer`.
struct Hop {
  int rank;
  Wait wait;
  int peer;
};

struct Culprits {
  std::vector<int> ranks;  // in order; empty: there is no telling, or all wait for each other
  bool known = true;       // false: `ranks` have not said what they wait for
  std::optional<Wait> not_called;  // a collective that none of `ranks` has called
  /// From the rank that asked to one of `ranks`; where `ranks` is empty, the ranks that wait for
  /// each other, from the lowest of them and back to it.
  std::vector<Hop> path;
};

/// `waits`, of `rank`, have lasted for `waited_ns`, which is too long.
Culprits find_culprits(const std::vector<KnownRank>& ranks, int rank,
                       const std::vector<Wait>& waits, int64_t now_ns, int64_t waited_ns);

/// Why `culprits`, which must not be empty, are at fault. `blocker`: whom the rank that asks waits
/// for itself, in words.
std::string explain(const Culprits& culprits, const std::string& blocker);
/// "rank 0 waits in recv #3 for rank 1, which waits in send #2 for rank 0".
std::string describe(const std::vector<Hop>& path);
/// "recv #3".
std::string operation_name(const Wait& wait);

}  // namespace ropewalk

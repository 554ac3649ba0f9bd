// Which ports of two ranks are joined. Pure, so that both ranks find the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/port_info.h"

namespace ropewalk::verbs {

/// A lane joins port `a` of the lower rank with port `b` of the higher: indices into their lists.
struct LanePair {
  uint8_t a = 0, b = 0;
  std::string subnet;  // in which they meet; empty: none that both are known to be in
  bool operator==(const LanePair&) const = default;
};

/// Only ports of one link layer are joined, InfiniBand where both have it. Of those, where any two
/// have a known subnet in common, only such; and none that is slower than half of the fastest pair,
/// since a message is cut over all lanes alike. Lanes are spread evenly over the ports, and of
/// ports alike go first to those that both prefer the subnet in which they meet. `lanes` == 0: as
/// many as the rank with more ports in use has of them. Empty where no two ports can be joined.
std::vector<LanePair> pair_lanes(const std::vector<PortInfo>& a, const std::vector<PortInfo>& b,
                                 int lanes);

}  // namespace ropewalk::verbs

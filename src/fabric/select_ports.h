// Which of this host's usable RDMA ports a rank takes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fabric/port_info.h"

namespace ropewalk::verbs {

/// A rank opens so many adapters at most: a remote key has room for the keys of two.
inline constexpr size_t kAdaptersMax = 2;

struct PortCandidate {
  PortInfo info;
  double local_share = 1;  // of the CPUs that the rank may use: how many the adapter is local to
};

/// Indices of those to use, in this order: the nearest first, then the fastest, then by name. Of
/// kAdaptersMax adapters and kPortsMax ports at most; none slower than half of the fastest, unless
/// `named`: the user has said which he wants. `why_not` gets a sentence for each of the others.
std::vector<size_t> select_ports(const std::vector<PortCandidate>& candidates, bool named,
                                 std::vector<std::string>& why_not);

}  // namespace ropewalk::verbs

// What ranks tell each other about themselves when they join, inside the bootstrap's card
// (docs/protocol.md, "Frames").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/port_info.h"

namespace ropewalk {

struct RankInfo {
  std::string transport;                    // as asked for: "auto", "shm", "tcp", "verbs"
  std::vector<int> cpus;                    // that the rank may use
  std::string mailbox;                      // its address in shared memory; empty without
  std::vector<verbs::PortInfo> ports = {};  // of RDMA, that it can use; the nearest first
  std::string no_ports = {};  // why there are none; empty where there are, or nobody looked

  /// `no_ports` is cut to kNoPortsBytesMax, and told only where there are none.
  std::string text() const;
  /// Throws Error(protocol) for what is no such text.
  static RankInfo parse(std::string_view text);
};

inline constexpr size_t kNoPortsBytesMax = 500;

}  // namespace ropewalk

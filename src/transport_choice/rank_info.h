// What ranks tell each other about themselves when they join, inside the bootstrap's record
// (docs/protocol.md, "Frames").
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fabric/port_info.h"

namespace ropewalk {

struct RankInfo {
  std::string transport;                    // as asked for: "auto", "shm", "tcp", "verbs", "ucx"
  std::vector<int> cpus;                    // that the rank may use
  std::string mailbox;                      // its address in shared memory; empty without
  std::vector<verbs::PortInfo> ports = {};  // of RDMA, that it can use; the nearest first
  std::string no_ports = {};  // why there are none; empty where there are, or nobody looked
  std::string ucx = {};       // its version; empty where there is none, or nobody looked
  std::vector<std::string> fabrics = {};  // that UCX reaches, but sockets: "rc_mlx5/mlx5_0:1"

  /// `no_ports` is cut to kNoPortsBytesMax, and told only where there are none; of `fabrics` the
  /// first kFabricsMax are told, but none whose name has other characters than names have.
  std::string text() const;
  /// Throws Error(protocol) for what is no such text.
  static RankInfo parse(std::string_view text);
};

inline constexpr size_t kNoPortsBytesMax = 500;
inline constexpr size_t kFabricsMax = 8, kFabricBytesMax = 64;

}  // namespace ropewalk

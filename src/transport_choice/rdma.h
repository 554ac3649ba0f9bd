// This rank's RDMA ports, and the transport over them: the only door to verbs, so that nothing else
// asks whether Ropewalk was built with libibverbs (rdma.cc) or without (no_rdma.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/config.h"
#include "bootstrap/sockets.h"
#include "fabric/port_info.h"
#include "ropewalk/transport.h"

namespace ropewalk {

/// Holds the adapters open. Threads: one at a time.
class Rdma {
 public:
  /// Looks for ports; it is no failure that there are none.
  explicit Rdma(const Config& config);
  ~Rdma();
  Rdma(const Rdma&) = delete;
  Rdma& operator=(const Rdma&) = delete;

  const std::vector<verbs::PortInfo>& ports() const { return infos_; }
  /// Of each port that cannot be used: why, and what to do. One sentence where there is no adapter.
  const std::vector<std::string>& why_not() const { return why_not_; }

  /// A transport to all ranks, whose ports are `ports_of` by rank, this rank's among them: lanes
  /// are paired by pair_lanes. Only where there are ports. `sockets` must outlive it. Throws Error.
  std::unique_ptr<Transport> make_transport(
      int rank, SocketSource& sockets,
      const std::vector<std::vector<verbs::PortInfo>>& ports_of) const;

 private:
  struct Ports;
  const Config config_;
  std::unique_ptr<Ports> ports_;
  std::vector<verbs::PortInfo> infos_;
  std::vector<std::string> why_not_;
};

}  // namespace ropewalk

// What a port is now: for choosing, for linking, and for `ropewalk doctor`.
#pragma once

#include <ifaddrs.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transports/verbs/devices.h"
#include "transports/verbs/gid.h"
#include "transports/verbs/ports.h"

namespace ropewalk::verbs {

struct PortState {
  ibv_port_state state = IBV_PORT_NOP;
  LinkLayer link_layer = LinkLayer::infiniband;
  uint16_t lid = 0;
  bool needs_grh = false;  // InfiniBand that routes by GID even within a subnet
  ibv_mtu mtu_active = IBV_MTU_256, mtu_max = IBV_MTU_256;
  uint32_t rate_gbps = 0;
  std::string interface;       // under RoCE: its network device; empty where unknown
  std::vector<GidEntry> gids;  // in the order of their indices
  GidChoice gid;
  std::vector<std::string> subnets;  // in which a peer may meet it, the chosen GID's first
  std::string problem, advice;       // problem: why no rank can use it; empty where all is well
};

/// Never throws; what cannot be queried is a problem.
PortState examine(const Adapter& adapter, uint8_t number, const PortPreference& preference);

std::string_view name_of(ibv_port_state state);  // "ACTIVE", "DOWN"
int bytes_of(ibv_mtu mtu);

/// The addresses of all network devices, as they were when it was made.
class InterfaceAddresses {
 public:
  InterfaceAddresses();
  /// "192.168.1.0/24": the network in which `interface` has the address `gid`; of a link-local IPv6
  /// address "fe80::/64". Empty where the interface has no such address.
  std::string network_of(const std::string& interface, const Gid& gid) const;

 private:
  Owned<ifaddrs, freeifaddrs> list_;
};
/// Of a network device, in bytes; 0 where there is no such.
int interface_mtu(const std::string& interface);

/// In /sys.
std::string folder_of(const std::string& device);
/// No PCI or other device behind it: rdma_rxe, siw.
bool is_software(const std::string& device);

}  // namespace ropewalk::verbs

// The ports of RDMA adapters that this process can use.
//
// - A port counts only if it is active, has a GID, and this process may lock 64 MiB or more. Every
//   other one gets a sentence with the command that mends it; `ropewalk doctor` prints the same.
// - GIDs: of RoCE version 2 before 1, addresses of wide reach before link-local ones, IPv4 before
//   IPv6; before all that, one in the subnet in which `pair_lanes` lets the two ports meet. They
//   are queried again for each link, because they change when a network device goes down and up;
//   while one is down, again and again for a while. One that changes after the peer has been
//   told it, and before the link stands, is looked for again; if it has gone, that is the error.
// - Of several ports `select_ports` takes those of the two adapters nearest to the rank's CPUs, and
//   none of less than half of the fastest one's rate. Two, because a remote key has room for two
//   adapters' keys. Ranks of a host that are equally near to more adapters all take the first two
//   by name: before joining a rank does not know its neighbours. ROPEWALK_IB_HCA tells them apart.
// - `pair_lanes` decides which of two ranks' ports meet: never of different link layers, and where
//   any two share a subnet only such, since rails are often not joined to each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/port_info.h"
#include "fabric/select_ports.h"
#include "transports/verbs/gid.h"

namespace ropewalk::verbs {

class Adapter;

struct Port {
  std::shared_ptr<Adapter> adapter;
  uint8_t number = 1;
};

/// "mlx5_0 port 1".
std::string name_of(const Port& port);

/// What a peer needs to reach a port now. Queried afresh for every link: GIDs and LIDs change.
struct PortAddress {
  LinkLayer link_layer = LinkLayer::infiniband;
  uint16_t lid = 0;  // of InfiniBand
  Gid gid{};
  uint8_t gid_index = 0;   // at this end; nothing to a peer
  uint8_t mtu = 0;         // an ibv_mtu: the port's active one
  bool needs_grh = false;  // at this end; nothing to a peer
};

/// "GID 192.168.1.2", "GID fe80::1, LID 5".
std::string text_of(const PortAddress& address);

/// From the config.
struct PortPreference {
  std::string hca;               // ROPEWALK_IB_HCA
  std::optional<int> gid_index;  // ROPEWALK_IB_GID_INDEX
};

struct UsablePorts {
  std::vector<Port> ports;      // at most kPortsMax on at most kAdaptersMax adapters, nearest first
  std::vector<PortInfo> infos;  // of the same index: what other ranks are told
  /// A sentence for each port that was passed over, or for all: what is wrong, and how to mend it.
  /// Not empty where there is no adapter.
  std::vector<std::string> why_not;
};
/// What this process can use, seen from its CPUs. Throws Error(invalid_argument) where `preference`
/// makes no sense.
UsablePorts find_ports(const PortPreference& preference);

/// In `subnet` where the port has a GID there. Throws Error(unavailable) that names device, port
/// and the way out where the port is down or has no GID that can be used.
PortAddress address_of(const Port& port, const PortPreference& preference,
                       std::string_view subnet = {});

/// Finds the row in which the port's table has the GID of `told` now. False where it has it no
/// more, or the LID is another. Throws what address_of throws.
bool find_again(const Port& port, const PortPreference& preference, PortAddress& told);

}  // namespace ropewalk::verbs

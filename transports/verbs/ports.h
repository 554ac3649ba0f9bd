// The ports of RDMA adapters that this process can use.
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

/// Usable ports, at most kPortsMax on at most kAdaptersMax adapters, the nearest to the CPUs of
/// this process first. `why_not` gets a sentence for each port that was passed over, or for all:
/// what is wrong, and how to mend it. Empty, with a sentence, where there is no adapter.
std::vector<Port> find_ports(const PortPreference& preference, std::vector<std::string>& why_not);

/// In `subnet` where the port has a GID there. Throws Error(unavailable) that names device, port
/// and the way out where the port is down or has no GID that can be used.
PortAddress address_of(const Port& port, const PortPreference& preference,
                       std::string_view subnet = {});

/// Finds the row in which the port's table has the GID of `told` now. False where it has it no
/// more, or the LID is another. Throws what address_of throws.
bool find_again(const Port& port, const PortPreference& preference, PortAddress& told);

/// What the other ranks are told of it. Throws what address_of throws.
PortInfo info_of(const Port& port, const PortPreference& preference);

}  // namespace ropewalk::verbs

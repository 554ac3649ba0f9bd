// What `ropewalk doctor` says of RDMA adapters.
#pragma once

#include <string>
#include <vector>

#include "transport_choice/provider.h"
#include "transports/verbs/port_state.h"

namespace ropewalk::verbs {

struct SeenPort {
  std::string device;
  int number = 1;
  bool is_software = false;  // no hardware behind it
  int interface_mtu = 0;     // in bytes, of state.interface; 0: unknown
  PortState state;
};

/// Pure. State and way out; GIDs and the one that is taken; a warning where packets could be
/// longer.
std::vector<Diagnosis> diagnose(const SeenPort& port);

/// Adapters, ports, GIDs, and what a rank would take of them. Problems are failures where
/// ROPEWALK_* variables demand RDMA.
std::vector<Diagnosis> diagnose();

}  // namespace ropewalk::verbs

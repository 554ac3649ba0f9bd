// What `ropewalk doctor` says of an RDMA port. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/doctor.h"
#include "transports/verbs/port_state.h"

namespace ropewalk::tools {

struct SeenPort {
  std::string device;
  int number = 1;
  bool is_software = false;  // no hardware behind it
  int interface_mtu = 0;     // in bytes, of state.interface; 0: unknown
  verbs::PortState state;
};

/// State and way out; GIDs and the one that is taken; a warning where packets could be longer.
std::vector<Diagnosis> diagnose(const SeenPort& port);

}  // namespace ropewalk::tools

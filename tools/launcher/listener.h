// The socket at which rank 0 meets the other ranks, made before any rank runs: no port is guessed.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace ropewalk::tools {

struct Listener {
  UniqueFd socket;  // listening
  int port = 0;
  std::string address;  // where others reach this host, as far as it knows; empty: by its name
};

/// On 127.0.0.1, or on every interface. Where an ssh session runs this process its end of the
/// connection is the address, since that one was reachable. Throws Error(system).
Listener listen_for_ranks(bool loopback_only);

}  // namespace ropewalk::tools

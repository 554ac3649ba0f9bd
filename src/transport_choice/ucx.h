// UCX on this machine, and the transport over it: the only door to UCX, so that nothing else asks
// whether Ropewalk was built with it (ucx.cc) or without (no_ucx.cc).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bootstrap/sockets.h"
#include "ropewalk/transport.h"
#include "transports/shm/sharing.h"

namespace ropewalk {

struct UcxReport {
  std::string version;           // "1.13.1"; empty where it cannot be used
  std::string why_not;           // where it cannot: what to do
  std::vector<std::string> all;  // its transports with their devices: "posix/memory"
  // Of these what reaches hosts better than sockets do, and UCX_TLS and UCX_NET_DEVICES allow.
  std::vector<std::string> fabrics;
  bool shares_memory = false;  // UCX_TLS allows shared memory that make_ucx_sharing is for
};
UcxReport look_at_ucx();

/// By which ranks of one host share memory through UCX. Throws Error.
std::unique_ptr<shm::Sharing> make_ucx_sharing();

/// `sockets` must outlive it. Throws Error.
std::unique_ptr<Transport> make_ucx_transport(int rank, int size, SocketSource& sockets);

}  // namespace ropewalk

// What UCX finds on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "transports/ucx/library.h"

namespace ropewalk::ucx {

struct Resource {
  std::string transport;  // "tcp", "posix", "rc_mlx5"
  std::string device;     // "eth0", "memory", "mlx5_0:1"
  uct_device_type_t type;

  /// Something that reaches other hosts better than sockets do. Adapters in software do not, and
  /// UCX 1.13 fails over them (README.md).
  bool is_fabric() const {
    return type == UCT_DEVICE_TYPE_NET && transport != "tcp" && !device.starts_with("rxe") &&
           !device.starts_with("siw");
  }
};

using VisitDomain = std::function<void(uct_component_h component, const std::string& name)>;
/// For every memory domain of UCX's, whatever UCX_TLS says.
void for_each_domain(const VisitDomain& visit);
/// With its own UCX_* settings; null where it cannot be opened. uct_md_close ends it.
uct_md_h open_domain(uct_component_h component, const std::string& name);

/// All that UCX could use, whatever UCX_TLS says. Opens devices, which takes a while.
std::vector<Resource> find_resources();

/// Whether UCX may use sockets here, as UCX_TLS and UCX_NET_DEVICES say. Opens no adapter.
bool uses_tcp(const Config& config);

std::string version();  // of the library: "1.13.1"

}  // namespace ropewalk::ucx

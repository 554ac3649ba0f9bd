// What UCX finds on this machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "transports/ucx/library.h"

namespace ropewalk::ucx {

enum class Reach { self, host, network, accelerator };

struct Resource {
  std::string transport;  // "tcp", "posix", "rc_mlx5"
  std::string device;     // "eth0", "memory", "mlx5_0:1"
  Reach reach = Reach::network;

  /// Something that reaches other hosts better than sockets do. Adapters in software do not, and
  /// UCX 1.13 fails over them (README.md).
  bool is_fabric() const {
    return reach == Reach::network && transport != "tcp" && !device.starts_with("rxe") &&
           !device.starts_with("siw");
  }
};

/// Calls `visit` for every memory domain of UCX's, with its component, whatever UCX_TLS says.
void for_each_domain(const std::function<void(uct_component_h, const char* name)>& visit);
/// With its own UCX_* settings; null where it cannot be opened. uct_md_close ends it.
uct_md_h open_domain(uct_component_h component, const char* name);

/// All that UCX could use, whatever UCX_TLS says. Opens devices, which takes a while.
std::vector<Resource> find_resources();

std::string version();  // of the library: "1.13.1"

}  // namespace ropewalk::ucx

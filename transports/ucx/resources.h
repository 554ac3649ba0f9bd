// What UCX finds on this machine.
#pragma once

#include <string>
#include <string_view>
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

using DomainHandle = Owned<uct_md_h, &Library::uct_md_close>;
/// A memory domain of UCX's.
struct Domain {
  uct_component_h component = nullptr;
  std::string name;
  /// With its own UCX_* settings; null where it cannot be opened.
  DomainHandle open() const;
};
/// All, whatever UCX_TLS says.
std::vector<Domain> find_domains();

/// All that UCX could use, whatever UCX_TLS says; of domains that are named so, where `only` is not
/// empty. Opens devices, which takes a while.
std::vector<Resource> find_resources(std::string_view only = {});

/// Whether UCX may use sockets here, as UCX_TLS and UCX_NET_DEVICES say. Opens no adapter.
bool uses_tcp(const Config& config);

/// Of the library: "1.13.1".
inline std::string version() {
  return lib().ucp_get_version_string();
}

}  // namespace ropewalk::ucx

// Which of this host's addresses other ranks may dial.
#pragma once

#include <string>
#include <vector>

#include "bootstrap/net.h"

namespace ropewalk::bootstrap {

/// An address of an interface that is up, with port 0.
struct LocalAddress {
  std::string interface;
  SocketAddress address;
};

/// All of them, loopback last; no IPv6 link-local ones (they need a scope). With `prefix`, those of
/// interfaces whose name begins so, including loopback; throws Error(invalid_argument) that lists
/// the interfaces there are when none does.
std::vector<LocalAddress> local_addresses(const std::string& prefix);

/// What to put into the record for a listener: "ip:port", at most kAddressesMax. `choice` says why,
/// for the log. A listener bound to one address has just that one.
std::vector<std::string> advertised_addresses(int listener_fd, const std::string& prefix,
                                              std::string& choice);

/// Moves the entry with `address`'s ip, where there is one, to the front: rank 0 was reached from
/// it, so it is known to work.
void prefer(std::vector<std::string>& addresses, const SocketAddress& address);

}  // namespace ropewalk::bootstrap

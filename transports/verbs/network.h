// The network devices under RoCE ports.
#pragma once

#include <ifaddrs.h>

#include <memory>
#include <string>

#include "transports/verbs/gid.h"

namespace ropewalk::verbs {

/// The addresses of all network devices, as they were when it was made.
class InterfaceAddresses {
 public:
  InterfaceAddresses();
  /// "192.168.1.0/24": the network in which `interface` has the address `gid`; of a link-local IPv6
  /// address "fe80::/64". Empty where the interface has no such address.
  std::string network_of(const std::string& interface, const Gid& gid) const;

 private:
  struct Free {
    void operator()(ifaddrs* list) const { freeifaddrs(list); }
  };
  std::unique_ptr<ifaddrs, Free> list_;
};

/// Pure: the first `bits` of the address, as text. `bits` count from the IPv4 address' begin where
/// it is one.
std::string network_text(const Gid& gid, int bits);

/// In bytes; 0 where there is no such interface.
int interface_mtu(const std::string& interface);
bool is_up(const std::string& interface);

}  // namespace ropewalk::verbs

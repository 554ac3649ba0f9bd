#include "transports/verbs/network.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>

#include <bit>
#include <charconv>
#include <cstring>

#include "topology/read_file.h"

namespace ropewalk::verbs {
namespace {

int ones_of(const unsigned char* mask, size_t bytes) {
  int ones = 0;
  for (size_t i = 0; i < bytes; ++i) ones += std::popcount(mask[i]);
  return ones;
}

/// Bits of the network where `address` is `gid`, else -1.
int prefix_bits(const ifaddrs& address, const Gid& gid) {
  if (address.ifa_addr == nullptr || address.ifa_netmask == nullptr) return -1;
  if (is_ipv4(gid) && address.ifa_addr->sa_family == AF_INET) {
    sockaddr_in own{}, mask{};
    std::memcpy(&own, address.ifa_addr, sizeof own);
    std::memcpy(&mask, address.ifa_netmask, sizeof mask);
    if (std::memcmp(&own.sin_addr, gid.data() + kIpv4At, sizeof own.sin_addr) != 0) return -1;
    return std::popcount(mask.sin_addr.s_addr);
  }
  if (!is_ipv4(gid) && address.ifa_addr->sa_family == AF_INET6) {
    sockaddr_in6 own{}, mask{};
    std::memcpy(&own, address.ifa_addr, sizeof own);
    std::memcpy(&mask, address.ifa_netmask, sizeof mask);
    if (std::memcmp(&own.sin6_addr, gid.data(), gid.size()) != 0) return -1;
    return ones_of(mask.sin6_addr.s6_addr, sizeof mask.sin6_addr.s6_addr);
  }
  return -1;
}

}  // namespace

std::string network_text(const Gid& gid, int bits) {
  Gid network = gid;
  const int kept = bits + (is_ipv4(gid) ? static_cast<int>(8 * kIpv4At) : 0);
  for (int bit = kept; bit < static_cast<int>(8 * network.size()); ++bit)
    network[static_cast<size_t>(bit / 8)] &= ~(std::byte{0x80} >> (bit % 8));
  return fmt::format("{}/{}", text_of(network), bits);
}

InterfaceAddresses::InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) list_.reset(list);
}

std::string InterfaceAddresses::network_of(const std::string& interface, const Gid& gid) const {
  for (const ifaddrs* address = list_.get(); address != nullptr; address = address->ifa_next) {
    if (interface != address->ifa_name) continue;
    const int bits = prefix_bits(*address, gid);
    if (bits >= 0) return network_text(gid, bits);
  }
  return {};
}

int interface_mtu(const std::string& interface) {
  const std::string text = read_file("/sys/class/net/" + interface + "/mtu").value_or("");
  int mtu = 0;
  std::from_chars(text.data(), text.data() + text.size(), mtu);
  return mtu;
}

bool is_up(const std::string& interface) {
  const std::string text = read_file("/sys/class/net/" + interface + "/flags").value_or("");
  unsigned flags = 0;
  if (text.starts_with("0x"))
    std::from_chars(text.data() + 2, text.data() + text.size(), flags, 16);
  return (flags & IFF_UP) != 0;
}

}  // namespace ropewalk::verbs

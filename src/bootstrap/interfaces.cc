#include "bootstrap/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "bootstrap/wire.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {
namespace {

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

}  // namespace

std::vector<LocalAddress> local_addresses(const std::string& prefix) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw Error(ErrorCode::system, "bootstrap",
                "cannot list the network interfaces: " + errno_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<LocalAddress> found;
  std::set<std::string> names;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || is_link_local(i->ifa_addr)) continue;
    names.insert(i->ifa_name);
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (std::string_view(i->ifa_name).starts_with(prefix))
      found.push_back({i->ifa_name, SocketAddress(i->ifa_addr, length)});
  }
  if (found.empty() && !prefix.empty())
    throw Error(ErrorCode::invalid_argument, "bootstrap",
                fmt::format("ROPEWALK_SOCKET_IFNAME=\"{}\" fits no interface that is up and has an "
                            "address",
                            prefix),
                fmt::format("there are: {}", fmt::join(names, ", ")));
  std::stable_partition(found.begin(), found.end(),
                        [](const LocalAddress& a) { return !a.address.is_loopback(); });
  return found;
}

std::vector<std::string> advertised_addresses(int listener_fd, const std::string& prefix,
                                              std::string& choice) {
  const SocketAddress bound = local_address(listener_fd);
  if (!bound.is_any()) {
    choice = fmt::format("{}: the coordinator's address means this host only", bound.text());
    return {bound.text()};
  }
  std::vector<std::string> addresses;
  std::vector<std::string> reasons;
  for (LocalAddress& local : local_addresses(prefix)) {
    const bool reachable = bound.family() == AF_INET6 || local.address.family() == AF_INET;
    if (!reachable || addresses.size() == kAddressesMax) continue;
    local.address.set_port(bound.port());
    addresses.push_back(local.address.text());
    reasons.push_back(fmt::format("{} ({})", addresses.back(), local.interface));
  }
  choice = fmt::format("{}: {}", fmt::join(reasons, ", "),
                       prefix.empty() ? "all interfaces that are up, loopback last"
                                      : "ROPEWALK_SOCKET_IFNAME=" + prefix);
  return addresses;
}

void prefer(std::vector<std::string>& addresses, const SocketAddress& address) {
  const std::string start =
      address.ip().find(':') == std::string::npos ? address.ip() + ":" : "[" + address.ip() + "]:";
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const std::string& text) { return text.starts_with(start); });
  if (found != addresses.end()) std::rotate(addresses.begin(), found, found + 1);
}

}  // namespace ropewalk::bootstrap

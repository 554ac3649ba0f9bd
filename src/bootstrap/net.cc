#include "bootstrap/net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cctype>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <system_error>

#include "base/descriptors.h"
#include "base/text.h"
#include "bootstrap/wire.h"
#include "ropewalk/status.h"

namespace ropewalk::bootstrap {
namespace {

constexpr int kBacklog = 4096;  // the kernel cuts it to net.core.somaxconn

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList look_up(const Endpoint& endpoint, int flags, int& error) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  error = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  return AddressList(error == 0 ? found : nullptr, &freeaddrinfo);
}

const sockaddr_in& as_v4(const SocketAddress& a) {
  return *reinterpret_cast<const sockaddr_in*>(a.get());
}
const sockaddr_in6& as_v6(const SocketAddress& a) {
  return *reinterpret_cast<const sockaddr_in6*>(a.get());
}

template <int (*query)(int, sockaddr*, socklen_t*) noexcept>
SocketAddress address_by(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (query(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

/// How many bits of a network's mask are set.
int mask_bits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const auto count = [](std::span<const uint8_t> bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), 0,
                           [](int bits, uint8_t byte) { return bits + std::popcount(byte); });
  };
  if (mask->sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in*>(mask)->sin_addr;
    return count({reinterpret_cast<const uint8_t*>(&v4), sizeof v4});
  }
  return count(reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr);
}

bool is_host_char(unsigned char c) {
  return std::isalnum(c) || c == '-' || c == '_' || c == '.';
}

/// The first number inside brackets whose text starts behind '['; moves `at` behind ']'.
std::optional<std::string_view> first_of_brackets(std::string_view text, size_t& at) {
  const size_t close = text.find(']', at);
  if (close == std::string_view::npos) return {};
  const std::string_view inside = text.substr(at, close - at);
  const bool clean = inside.find_first_not_of("0123456789-,") == inside.npos;
  const std::string_view number = inside.substr(0, inside.find_first_of("-,"));
  if (!clean || number.empty()) return {};
  at = close + 1;
  return number;
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

[[noreturn]] void cannot_listen(const std::string& where, int error) {
  std::string advice = advice_for_descriptors(error);
  if (advice.empty())
    advice = error == EADDRINUSE
                 ? "another job or program uses the port; choose another with ROPEWALK_COORDINATOR"
                 : "rank 0 must run on the host that ROPEWALK_COORDINATOR names";
  throw Error(ErrorCode::unavailable, "bootstrap",
              fmt::format("cannot listen at {}: {}", where, errno_text(error)), advice);
}

/// Of the process at the other end of a connection to an abstract name.
std::optional<ucred> peer_credentials(int fd) {
  ucred other{};
  socklen_t length = sizeof other;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) != 0) return {};
  return other;
}

}  // namespace

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return {};
  if (host.empty() || host.size() > kHostBytesMax) return {};
  const bool clean = std::ranges::all_of(
      host, [](unsigned char c) { return is_host_char(c) || c == ':' || c == '%'; });
  const auto port = parse_number<uint16_t>(digits);
  if (!clean || !port || *port == 0) return {};
  return Endpoint{std::string(host), *port};
}

std::vector<Endpoint> parse_endpoints(std::string_view text) {
  std::vector<Endpoint> endpoints;
  for (const std::string_view entry : split(text, ',')) {
    const auto endpoint = parse_endpoint(entry);
    if (!endpoint) return {};
    endpoints.push_back(*endpoint);
  }
  return endpoints;
}

std::optional<std::string> first_host(std::string_view text) {
  if (text.size() > kNodeListBytesMax) return {};
  std::string host;
  for (size_t at = 0; at < text.size() && text[at] != ',';) {
    const char c = text[at++];
    if (c == '[') {
      const auto number = first_of_brackets(text, at);
      if (!number) return {};
      host += *number;
    } else if (is_host_char(static_cast<unsigned char>(c))) {
      host += c;
    } else {
      return {};
    }
    if (host.size() > kHostBytesMax) return {};
  }
  if (host.empty()) return {};
  return host;
}

std::string to_text(const Endpoint& endpoint) {
  if (endpoint.host.find(':') != std::string::npos)
    return fmt::format("[{}]:{}", endpoint.host, endpoint.port);
  return fmt::format("{}:{}", endpoint.host, endpoint.port);
}

SocketAddress::SocketAddress(const sockaddr* address, socklen_t length)
    : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

SocketAddress SocketAddress::abstract(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  assert(name.size() < sizeof address.sun_path);
  std::ranges::copy(name, address.sun_path + 1);  // behind a zero
  return {reinterpret_cast<const sockaddr*>(&address),
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

std::string SocketAddress::ip() const {
  if (family() == AF_UNIX) return "this host";
  char text[INET6_ADDRSTRLEN] = "";
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &as_v4(*this).sin_addr, text, sizeof text);
  } else if (family() == AF_INET6) {
    const in6_addr& v6 = as_v6(*this).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6))
      inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
    else
      inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(as_v4(*this).sin_port);
  if (family() == AF_INET6) return ntohs(as_v6(*this).sin6_port);
  return 0;
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET) reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
}

bool SocketAddress::is_any() const {
  if (family() == AF_INET) return as_v4(*this).sin_addr.s_addr == INADDR_ANY;
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&as_v6(*this).sin6_addr);
}

bool SocketAddress::is_loopback() const {
  const std::string text = ip();
  return text == "::1" || text.starts_with("127.");
}

std::optional<SocketAddress> numeric_address(std::string_view text) {
  const auto endpoint = parse_endpoint(text);
  return endpoint ? numeric_address(*endpoint) : std::nullopt;
}

std::optional<SocketAddress> numeric_address(const Endpoint& endpoint) {
  int error = 0;
  const AddressList found = look_up(endpoint, AI_NUMERICHOST, error);
  if (!found) return {};
  return SocketAddress(found->ai_addr, found->ai_addrlen);
}

std::vector<SocketAddress> resolve(const Endpoint& endpoint, std::string& why) {
  int error = 0;
  const AddressList found = look_up(endpoint, 0, error);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next)
    addresses.emplace_back(a->ai_addr, a->ai_addrlen);
  if (addresses.empty()) why = error != 0 ? gai_strerror(error) : "no address";
  return addresses;
}

std::string canonical_name(const std::string& host) {
  int error = 0;
  const AddressList found = look_up({host, 0}, AI_CANONNAME, error);
  return found && found->ai_canonname != nullptr ? found->ai_canonname : host;
}

std::optional<SocketAddress> loopback_literal(const Endpoint& endpoint) {
  Endpoint literal = endpoint;
  if (literal.host == "localhost") literal.host = "127.0.0.1";
  const auto address = numeric_address(literal);
  if (!address || !address->is_loopback()) return {};
  return address;
}

std::string network_of(const std::string& ip, int prefix_bits) {
  const int family = ip.find(':') == std::string::npos ? AF_INET : AF_INET6;
  std::array<uint8_t, 16> bytes{};
  const int bits = family == AF_INET ? 32 : 128;
  if (prefix_bits < 0 || prefix_bits > bits || inet_pton(family, ip.c_str(), bytes.data()) != 1)
    return {};
  for (int bit = prefix_bits; bit < bits; ++bit)
    bytes[static_cast<size_t>(bit / 8)] &= static_cast<uint8_t>(~(0x80 >> bit % 8));
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, bytes.data(), text.data(), text.size());
  return fmt::format("{}/{}", text.data(), prefix_bits);
}

bool is_within(const SocketAddress& address, const std::string& network) {
  const size_t slash = network.find('/');
  return slash != std::string::npos &&
         network_of(address.ip(), std::atoi(network.c_str() + slash + 1)) == network;
}

std::vector<LocalAddress> local_addresses(const std::string& prefix) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    const int error = errno;
    throw Error(ErrorCode::system, "bootstrap",
                "cannot list the network interfaces: " + errno_text(error),
                advice_for_descriptors(error));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<LocalAddress> found;
  std::set<std::string> names;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || is_link_local(i->ifa_addr)) continue;
    names.insert(i->ifa_name);
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (std::string_view(i->ifa_name).starts_with(prefix))
      found.push_back({i->ifa_name, SocketAddress(i->ifa_addr, length), mask_bits(i->ifa_netmask),
                       (i->ifa_flags & IFF_UP) != 0});
  }
  if (std::ranges::none_of(found, &LocalAddress::is_up) && !prefix.empty())
    throw Error(ErrorCode::invalid_argument, "bootstrap",
                fmt::format("ROPEWALK_SOCKET_IFNAME=\"{}\" fits no interface that is up and has an "
                            "address",
                            prefix),
                fmt::format("there are: {}", fmt::join(names, ", ")));
  std::ranges::stable_sort(found, {}, [](const LocalAddress& each) {
    return std::pair(each.address.is_loopback(), !each.is_up);
  });
  return found;
}

std::vector<std::string> advertised_addresses(std::span<const UniqueFd> listeners,
                                              const std::string& prefix, std::string& choice) {
  assert(!listeners.empty());
  const SocketAddress bound = local_address(listeners.front().get());
  std::vector<std::string> addresses;
  if (!bound.is_any()) {
    for (const UniqueFd& listener : listeners)
      addresses.push_back(local_address(listener.get()).text());
    choice = fmt::format("{}: {}", fmt::join(addresses, ", "),
                         prefix.empty() ? "the coordinator's address means this host only"
                                        : "ROPEWALK_SOCKET_IFNAME=" + prefix);
    return addresses;
  }
  std::vector<std::string> reasons;
  for (LocalAddress& local : local_addresses(prefix)) {
    const bool reachable = bound.family() == AF_INET6 || local.address.family() == AF_INET;
    if (!reachable || addresses.size() == kAddressesMax) continue;
    local.address.set_port(bound.port());
    addresses.push_back(local.address.text());
    reasons.push_back(fmt::format("{} ({})", addresses.back(), local.interface));
  }
  choice = fmt::format("{}: {}", fmt::join(reasons, ", "),
                       prefix.empty() ? "all interfaces, those that are up first, loopback last"
                                      : "ROPEWALK_SOCKET_IFNAME=" + prefix);
  return addresses;
}

void prefer(std::vector<std::string>& addresses, const SocketAddress& address) {
  const auto found = std::ranges::find_if(addresses, [&address](const std::string& text) {
    const auto each = numeric_address(text);
    return each && each->ip() == address.ip();
  });
  if (found != addresses.end()) std::rotate(addresses.begin(), found, found + 1);
}

int try_listen(const SocketAddress& address, UniqueFd& into) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6)
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), address.get(), address.length()) != 0) return errno;
  if (::listen(fd.get(), kBacklog) != 0) return errno;
  into = std::move(fd);
  return 0;
}

UniqueFd listen_at(const SocketAddress& address) {
  UniqueFd fd;
  if (const int error = try_listen(address, fd)) cannot_listen(address.text(), error);
  return fd;
}

bool is_of_this_host(const SocketAddress& address) {
  return address.is_loopback() ||
         std::ranges::any_of(local_addresses(""), [&](const LocalAddress& local) {
           return local.address.ip() == address.ip();
         });
}

UniqueFd listen_everywhere(uint16_t port) {
  UniqueFd fd;
  const int error = try_listen(numeric_address(Endpoint{"::", port}).value(), fd);
  if (error == 0) return fd;
  if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL)
    cannot_listen(fmt::format("port {}", port), error);
  return listen_at(numeric_address(Endpoint{"0.0.0.0", port}).value());
}

std::vector<UniqueFd> listen_on_interfaces(const std::string& prefix, uint16_t port) {
  constexpr int kTries = 16;
  std::vector<LocalAddress> addresses = local_addresses(prefix);
  std::set<std::string> ips;  // several interfaces may have the same
  std::erase_if(addresses, [&](const LocalAddress& each) {
    return !ips.insert(each.address.ip()).second || ips.size() > kAddressesMax;
  });
  for (int tries = 1;; ++tries) {
    std::vector<UniqueFd> listeners;
    int failure = 0;
    for (LocalAddress& each : addresses) {
      const bool has_port = port != 0 || listeners.empty();
      each.address.set_port(has_port ? port : local_address(listeners[0].get()).port());
      UniqueFd fd;
      const int error = try_listen(each.address, fd);
      if (error == 0) listeners.push_back(std::move(fd));
      if (error != 0 && error != EADDRNOTAVAIL) failure = error;  // that one is not ready
    }
    if (failure == 0 && !listeners.empty()) return listeners;
    // Somebody has the port at one of the addresses.
    if (port == 0 && tries < kTries && failure == EADDRINUSE) continue;
    cannot_listen(fmt::format("port {} of {}", port, prefix),
                  failure == 0 ? EADDRNOTAVAIL : failure);
  }
}

std::vector<UniqueFd> listen_at_coordinator(const Endpoint& coordinator,
                                            const std::string& socket_ifname) {
  if (socket_ifname.empty()) {
    const auto local = loopback_literal(coordinator);
    std::vector<UniqueFd> one;
    one.push_back(local ? listen_at(*local) : listen_everywhere(coordinator.port));
    return one;
  }
  auto listeners = listen_on_interfaces(socket_ifname, coordinator.port);
  std::string why;
  for (const SocketAddress& address : resolve(coordinator, why)) {
    if (is_of_this_host(address) && std::ranges::none_of(listeners, [&](const UniqueFd& fd) {
          return local_address(fd.get()).ip() == address.ip();
        }))
      listeners.push_back(listen_at(address));
  }
  return listeners;
}

bool is_loopback(const std::vector<Endpoint>& endpoints) {
  const auto is_local = [](const Endpoint& at) { return loopback_literal(at).has_value(); };
  return !endpoints.empty() && std::ranges::all_of(endpoints, is_local);
}

UniqueFd duplicate_listener(int inherited) {
  int listens = 0;
  socklen_t length = sizeof listens;
  UniqueFd fd(fcntl(inherited, F_DUPFD_CLOEXEC, 3));
  if (!fd || getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
      listens == 0)
    throw Error(ErrorCode::invalid_argument, "bootstrap",
                fmt::format("descriptor {} is not a listening socket", inherited),
                "ROPEWALK_COORDINATOR_FD must be a socket that listens at ROPEWALK_COORDINATOR");
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  // Else connections that were made there hold the address when those that listened are gone.
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  return fd;
}

SocketAddress local_address(int fd) {
  return address_by<getsockname>(fd);
}
SocketAddress peer_address(int fd) {
  return address_by<getpeername>(fd);
}

int begin_connect(const SocketAddress& address, UniqueFd& fd) {
  fd.reset(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return errno;
  if (::connect(fd.get(), address.get(), address.length()) == 0 || errno == EINPROGRESS) return 0;
  return errno;
}

int finish_connect(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  if (error != 0) return error;
  const SocketAddress local = local_address(fd);
  if (local.family() == AF_UNIX) {
    const auto other = peer_credentials(fd);
    return other && other->uid == geteuid() ? 0 : EACCES;
  }
  return local.text() == peer_address(fd).text() ? ECONNREFUSED : 0;
}

int64_t peer_pid(int fd) {
  const auto other = peer_credentials(fd);
  return other ? other->pid : 0;
}

void tune_data_stream(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool is_within_host(int fd) {
  return local_address(fd).ip() == peer_address(fd).ip();
}

void tune_control_stream(int fd, std::chrono::nanoseconds link_timeout) {
  tune_data_stream(fd);
  const auto ms = static_cast<unsigned>(
      std::chrono::duration_cast<std::chrono::milliseconds>(link_timeout).count());
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

std::string errno_text(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace ropewalk::bootstrap

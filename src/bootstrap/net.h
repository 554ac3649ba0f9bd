// Addresses, interfaces and TCP sockets: the few system calls that the bootstrap makes, each
// wrapped once.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace ropewalk::bootstrap {

inline constexpr size_t kHostBytesMax = 255;

struct Endpoint {
  std::string host;  // a name or a numeric address, without brackets
  uint16_t port = 0;
};
/// "name:port", "1.2.3.4:port" or "[v6]:port", port 1 to 65535; nothing where it is none of these.
std::optional<Endpoint> parse_endpoint(std::string_view text);
/// The same for a list with commas between; empty where an entry is none of these.
std::vector<Endpoint> parse_endpoints(std::string_view text);
/// The inverse of parse_endpoint: brackets around a v6 address.
std::string to_text(const Endpoint& endpoint);

inline constexpr size_t kNodeListBytesMax = 1 << 16;
/// The first host of Slurm's compact lists: "node01" of "node[01-03,07],login1". Several brackets
/// in one name are understood ("rack[1-2]n[01-16]" gives "rack1n01"). Nothing where the text is no
/// such list; what follows the first host is not looked at.
std::optional<std::string> first_host(std::string_view node_list);

/// A numeric IPv4 or IPv6 address with a port. IPv4 inside IPv6 (::ffff:1.2.3.4) is shown as IPv4.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  std::string ip() const;
  uint16_t port() const;
  void set_port(uint16_t port);
  std::string text() const { return to_text(Endpoint{ip(), port()}); }
  bool is_any() const;       // 0.0.0.0 or ::
  bool is_loopback() const;  // 127/8 or ::1
  /// A name in Linux's abstract namespace of this host's sockets, or rather this network
  /// namespace's; at most 100 letters. It goes with the socket. Its ip() is "this host".
  static SocketAddress abstract(std::string_view name);

 private:
  sockaddr_storage storage_ = {};
  socklen_t length_ = 0;
};

/// A numeric "ip:port"; nothing for a name. Asks no resolver.
std::optional<SocketAddress> numeric_address(std::string_view text);
std::optional<SocketAddress> numeric_address(const Endpoint& endpoint);
/// Every address of `endpoint`; may block for as long as the resolver does. Empty: `why` says why.
std::vector<SocketAddress> resolve(const Endpoint& endpoint, std::string& why);
/// With its domain, as the resolver tells it; `host` itself where it knows none.
std::string canonical_name(const std::string& host);
/// The literals that mean this host only: 127/8, ::1, "localhost". Asks no resolver.
std::optional<SocketAddress> loopback_literal(const Endpoint& endpoint);

/// An address of an interface, with port 0.
struct LocalAddress {
  std::string interface;
  SocketAddress address;
  int prefix_bits = 0;  // of its network
  bool is_up = true;    // the interface; it may come back
};

/// All of them: of interfaces that are up, of those that are not, loopback; no IPv6 link-local ones
/// (they need a scope). With `prefix`, those of interfaces whose name begins so, including
/// loopback; throws Error(invalid_argument) that lists the interfaces there are when none is up.
std::vector<LocalAddress> local_addresses(const std::string& prefix);

/// "10.77.0.0/24" of "10.77.0.5" and 24; empty where these are no address and its bits.
std::string network_of(const std::string& ip, int prefix_bits);
/// Whether `network`, as network_of gives it, has that address.
bool is_within(const SocketAddress& address, const std::string& network);

/// What to put into the record for this rank's listeners: "ip:port", at most kAddressesMax.
/// `choice` says why, for the log. A listener bound to one address has just that one.
std::vector<std::string> advertised_addresses(std::span<const UniqueFd> listeners,
                                              const std::string& prefix, std::string& choice);

/// Moves the entry with `address`'s ip, where there is one, to the front: rank 0 was reached from
/// it, so it is known to work.
void prefer(std::vector<std::string>& addresses, const SocketAddress& address);

/// A non-blocking listening socket at `address`; throws Error(unavailable) with errno's text.
UniqueFd listen_at(const SocketAddress& address);
/// The same on every interface: IPv6 and IPv4, or IPv4 only where the machine has no IPv6.
UniqueFd listen_everywhere(uint16_t port);
/// A listener there, and 0; or errno, which is EADDRINUSE where there is one already.
int try_listen(const SocketAddress& address, UniqueFd& into);
/// There are some, and all mean this host only.
bool is_loopback(const std::vector<Endpoint>& endpoints);
/// Loopback, or of an interface here, up or not.
bool is_of_this_host(const SocketAddress& address);
/// One each at the addresses of the interfaces whose names begin with `prefix`, kAddressesMax at
/// most, all at the same port; 0: a free one.
std::vector<UniqueFd> listen_on_interfaces(const std::string& prefix, uint16_t port);
/// Where rank 0 waits for the others, and members for newcomers: at the coordinator's port, of the
/// interfaces that were asked for and of the coordinator's addresses where those are others of this
/// host. Throws Error(unavailable).
std::vector<UniqueFd> listen_at_coordinator(const Endpoint& coordinator,
                                            const std::string& socket_ifname);
/// The caller's descriptor stays open, so that a later job can use it again. Throws
/// Error(invalid_argument) where it is no listening socket.
UniqueFd duplicate_listener(int inherited);
/// Where `fd` is bound; where `fd` is connected to. Unset (length 0) on error.
SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

/// Begins a non-blocking connect; 0 with `fd` set (connected or under way), else errno.
int begin_connect(const SocketAddress& address, UniqueFd& fd);
/// The process at the other end of a connection to an abstract name; 0: unknown.
int64_t peer_pid(int fd);
/// The outcome of a connect that poll says is over; 0 or errno. A socket that has connected to
/// itself (possible on loopback while nobody listens) counts as ECONNREFUSED; one to another user's
/// process at an abstract name as EACCES.
int finish_connect(int fd);
/// Both ends of the connection are on this host.
bool is_within_host(int fd);
/// No Nagle delay; the kernel gives up the connection when sent bytes stay unacknowledged for
/// `link_timeout`. It does so, too, when the other end reads nothing for as long and its buffer is
/// full: only for streams that a control thread reads.
void tune_control_stream(int fd, std::chrono::nanoseconds link_timeout);
/// No Nagle delay, and no limit: a rank that computes reads nothing.
void tune_data_stream(int fd);

/// "connection reset by peer" and the like.
std::string errno_text(int error);

}  // namespace ropewalk::bootstrap

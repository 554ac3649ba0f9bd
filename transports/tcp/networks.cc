#include "transports/tcp/networks.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "base/unique_fd.h"
#include "bootstrap/net.h"
#include "ropewalk/status.h"
#include "transports/tcp/frame.h"

namespace ropewalk::tcp {
namespace {

struct Adapter {
  std::string ip, network;
  int speed_mbps = 0;
};

using Host = std::vector<Adapter>;

/// False where the driver knows none, or does not answer.
bool ask_driver(const std::string& interface, void* question) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = static_cast<char*>(question);
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd && ioctl(fd.get(), SIOCETHTOOL, &request) == 0;
}

/// 0: unknown.
int speed_mbps(const std::string& interface) {
  ethtool_cmd link{};
  link.cmd = ETHTOOL_GSET;
  if (!ask_driver(interface, &link)) return 0;
  return std::max(static_cast<int>(ethtool_cmd_speed(&link)), 0);  // SPEED_UNKNOWN is -1
}

/// Whether its packets leave by another adapter, or reach no network.
bool is_virtual(const std::string& interface) {
  static const std::set<std::string_view> drivers = {
      "802.1Q VLAN Support", "bridge",     "dummy", "geneve", "ipvlan", "macvlan", "tun", "vxlan",
      "wireguard",           "openvswitch"};
  ethtool_drvinfo driver{};
  driver.cmd = ETHTOOL_GDRVINFO;
  return ask_driver(interface, &driver) && drivers.contains(driver.driver);
}

bool parse_number(std::string_view text, int& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size() && into >= 0;
}

/// "10.77.0.1/24@10000".
std::optional<Adapter> parse_adapter(std::string_view text) {
  const size_t slash = text.find('/'), at = text.find('@');
  if (slash == std::string_view::npos || at == std::string_view::npos || at < slash) return {};
  Adapter adapter{std::string(text.substr(0, slash)), {}, 0};
  int bits = 0;
  if (!parse_number(text.substr(slash + 1, at - slash - 1), bits) ||
      !parse_number(text.substr(at + 1), adapter.speed_mbps))
    return {};
  adapter.network = bootstrap::network_of(adapter.ip, bits);
  if (adapter.network.empty()) return {};
  return adapter;
}

Host parse_adapters(const std::string& info) {
  Host adapters;
  std::istringstream words(info);
  for (std::string word; words >> word;) {
    const auto adapter = parse_adapter(word);
    if (!adapter)
      throw Error(ErrorCode::protocol, "tcp", fmt::format("a rank told \"{}\" of an adapter", word),
                  "install the same Ropewalk on every rank");
    adapters.push_back(*adapter);
  }
  return adapters;
}

/// The greatest speed that every host has an adapter of. In another network there may be faster
/// ones: they are left to whoever routes between them.
int fastest_of_all(const std::vector<Host>& hosts) {
  int fastest = std::numeric_limits<int>::max();
  for (const Host& host : hosts) {
    int of_host = 0;
    for (const Adapter& adapter : host) of_host = std::max(of_host, adapter.speed_mbps);
    fastest = std::min(fastest, of_host);
  }
  return fastest;
}

/// Why `network` carries no data beside others; empty: it may.
std::string why_unused(const std::vector<Host>& hosts, const std::string& network, int fastest) {
  size_t without = 0;
  int slowest = std::numeric_limits<int>::max();
  std::set<std::string> ips;
  for (const Host& host : hosts) {
    const auto count = std::ranges::count(host, network, &Adapter::network);
    if (count > 1) return "a host has several adapters to it";
    if (count == 0) {
      ++without;
      continue;
    }
    const Adapter& adapter = *std::ranges::find(host, network, &Adapter::network);
    ips.insert(adapter.ip);
    slowest = std::min(slowest, adapter.speed_mbps);
  }
  if (without > 0)
    return fmt::format("{} of {} hosts ha{} no adapter to it", without, hosts.size(),
                       without == 1 ? "s" : "ve");
  if (ips.size() < hosts.size())
    return "hosts have the same address there, as those of bridges for containers are";
  if (slowest == fastest) return {};
  return slowest == 0
             ? "a host's adapter to it tells no speed"
             : fmt::format("a host's adapter to it moves {} Mbit/s, others {}", slowest, fastest);
}

struct SharedNetworks {
  std::vector<std::string> names;
  int speed_mbps = 0;
};

SharedNetworks find_shared(const std::vector<Host>& hosts) {
  SharedNetworks shared{.names = {}, .speed_mbps = fastest_of_all(hosts)};
  for (const Adapter& adapter : hosts.front())
    if (why_unused(hosts, adapter.network, shared.speed_mbps).empty())
      shared.names.push_back(adapter.network);
  if (shared.names.size() < 2) shared.names.clear();
  return shared;
}

/// Ranks of one host, which as a rule follow each other, tell the same, and count once.
std::vector<Host> parse_hosts(const std::vector<std::string>& infos) {
  std::set<std::string> of_hosts;
  for (size_t rank = 0; rank < infos.size(); ++rank)
    if (rank == 0 || infos[rank] != infos[rank - 1]) of_hosts.insert(infos[rank]);
  std::vector<Host> hosts;
  for (const std::string& info : of_hosts) hosts.push_back(parse_adapters(info));
  return hosts;
}

}  // namespace

LocalAdapters find_adapters(const std::string& interface_prefix) {
  LocalAdapters found;
  std::set<std::string> seen;
  const bool by_name = !interface_prefix.empty();
  for (const auto& local : bootstrap::local_addresses(interface_prefix)) {
    const std::string ip = local.address.ip();
    // 169.254/16 leads to a service processor, or to nothing.
    if (!local.is_up || local.address.is_loopback() || ip.starts_with("169.254.")) continue;
    if (!seen.insert(local.interface).second) continue;
    const int speed = speed_mbps(local.interface);
    if (!by_name && is_virtual(local.interface)) {
      found.passed_over.push_back(
          fmt::format("{} uses another adapter, or leads to no network", local.interface));
    } else if (!by_name && speed == 0) {
      found.speedless.push_back(fmt::format("{} tells no speed", local.interface));
    } else if (found.counted.size() == kStreamsMax) {
      found.passed_over.push_back(
          fmt::format("{} is one more than {}", local.interface, kStreamsMax));
    } else {
      found.counted.push_back(
          fmt::format("{} ({})", local.interface,
                      speed == 0 ? "of unknown speed" : fmt::format("{} Mbit/s", speed)));
      if (!found.text.empty()) found.text += ' ';
      found.text += fmt::format("{}/{}@{}", ip, local.prefix_bits, speed);
    }
  }
  return found;
}

std::vector<std::string> shared_networks(const std::vector<std::string>& infos) {
  const auto hosts = parse_hosts(infos);
  return hosts.size() < 2 ? std::vector<std::string>() : find_shared(hosts).names;
}

std::vector<std::string> unused_networks(const std::vector<std::string>& infos) {
  const auto hosts = parse_hosts(infos);
  const auto has_one = [](const Host& host) { return host.size() < 2; };
  if (hosts.size() < 2 || std::ranges::all_of(hosts, has_one)) return {};
  std::set<std::string> networks;
  for (const Host& host : hosts)
    for (const Adapter& adapter : host) networks.insert(adapter.network);
  std::vector<std::string> told;
  const int fastest = fastest_of_all(hosts);
  for (const std::string& network : networks)
    if (const std::string why = why_unused(hosts, network, fastest); !why.empty())
      told.push_back(fmt::format("{}: {}", network, why));
  return told;
}

double host_bytes_per_s(const std::vector<std::string>& infos) {
  constexpr double kBytesPerMegabit = 1e6 / 8;
  assert(!infos.empty());
  const auto hosts = parse_hosts(infos);
  if (hosts.size() > 1)
    if (const SharedNetworks shared = find_shared(hosts); !shared.names.empty())
      return shared.speed_mbps * kBytesPerMegabit * static_cast<double>(shared.names.size());
  int slowest_mbps = std::numeric_limits<int>::max();
  for (const auto& host : hosts) {
    if (host.size() != 1) return 0;  // which of several is used the addresses do not tell
    slowest_mbps = std::min(slowest_mbps, host.front().speed_mbps);
  }
  return slowest_mbps * kBytesPerMegabit;
}

}  // namespace ropewalk::tcp

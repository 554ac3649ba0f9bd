#include "transports/tcp/networks.h"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
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

/// 0: unknown.
int speed_mbps(const std::string& interface) {
  ethtool_cmd link{};
  link.cmd = ETHTOOL_GSET;
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_data = reinterpret_cast<char*>(&link);
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd || ioctl(fd.get(), SIOCETHTOOL, &request) != 0) return 0;
  const int speed = static_cast<int>(ethtool_cmd_speed(&link));
  return std::max(speed, 0);  // SPEED_UNKNOWN is -1
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

std::vector<Adapter> parse_adapters(const std::string& info) {
  std::vector<Adapter> adapters;
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

}  // namespace

std::string adapters_text(const std::string& interface_prefix) {
  std::string text;
  std::set<std::string> seen;
  for (const auto& local : bootstrap::local_addresses(interface_prefix)) {
    if (local.address.is_loopback() || seen.size() == kStreamsMax) continue;
    const int speed = speed_mbps(local.interface);
    if ((speed == 0 && interface_prefix.empty()) || !seen.insert(local.interface).second) continue;
    if (!text.empty()) text += ' ';
    text += fmt::format("{}/{}@{}", local.address.ip(), local.prefix_bits, speed);
  }
  return text;
}

std::vector<std::string> shared_networks(const std::vector<std::string>& infos) {
  const std::set<std::string> of_hosts(infos.begin(), infos.end());  // ranks of one tell the same
  if (of_hosts.size() < 2) return {};
  std::vector<std::vector<Adapter>> hosts;
  for (const std::string& info : of_hosts) hosts.push_back(parse_adapters(info));
  std::vector<std::string> networks;
  int fastest = -1;
  for (const Adapter& adapter : hosts.front()) {
    std::set<std::string> ips;
    for (const auto& host : hosts)
      for (const Adapter& other : host)
        if (other.network == adapter.network && other.speed_mbps == adapter.speed_mbps)
          ips.insert(other.ip);
    const bool is_shared = std::ranges::all_of(hosts, [&](const std::vector<Adapter>& host) {
      return std::ranges::count(host, adapter.network, &Adapter::network) == 1;
    });
    if (!is_shared || ips.size() < hosts.size() || adapter.speed_mbps < fastest) continue;
    if (adapter.speed_mbps > fastest) networks.clear();
    fastest = adapter.speed_mbps;
    networks.push_back(adapter.network);
  }
  if (networks.size() < 2) return {};
  return networks;
}

double host_bytes_per_s(const std::vector<std::string>& infos) {
  int slowest_mbps = std::numeric_limits<int>::max();
  for (const std::string& info : infos) {
    int fastest = 0;
    for (const Adapter& adapter : parse_adapters(info))
      fastest = std::max(fastest, adapter.speed_mbps);
    slowest_mbps = std::min(slowest_mbps, fastest);
  }
  const size_t adapters = std::max<size_t>(shared_networks(infos).size(), 1);
  return slowest_mbps * 1e6 / 8 * static_cast<double>(adapters);
}

}  // namespace ropewalk::tcp

#include "transport_choice/provider.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "bootstrap/config.h"
#include "transports/tcp/networks.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {
namespace {

// That a rank has by default, to all others.
constexpr int kSocketsMax = 512;

/// Sockets of a peer: as many as were asked for, else one for each network, of which large jobs
/// have fewer: they are short of descriptors sooner than of adapters.
int streams_of(int asked, size_t networks, int size) {
  const int most = std::max(1, kSocketsMax / size);
  return asked > 0 ? asked : std::clamp(static_cast<int>(networks), 1, most);
}

constexpr std::string_view kNameAdvice =
    "ROPEWALK_SOCKET_IFNAME names adapters that are to carry data side by side, whatever they tell";
/// Of what is told of networks.
constexpr size_t kLinesMax = 16;

/// For rank 0: which networks carry data side by side, and why others do not.
void log_networks(const std::vector<std::string>& networks, const std::vector<std::string>& infos,
                  const tcp::LocalAdapters& adapters) {
  if (!networks.empty())
    log(LogLevel::info, 0, "tcp: hosts share {} networks: {}", networks.size(),
        fmt::join(networks, ", "));
  const std::vector<std::string> unused = tcp::unused_networks(infos);
  for (size_t i = 0; i < std::min(unused.size(), kLinesMax); ++i)
    log(LogLevel::info, 0, "tcp: no data goes beside others through {}", unused[i]);
  if (unused.size() > kLinesMax)
    log(LogLevel::info, 0, "tcp: nor through {} more", unused.size() - kLinesMax);
  if (adapters.counted.size() + adapters.speedless.size() < 2) return;
  for (const std::string& one : adapters.speedless)
    log(LogLevel::info, 0, "tcp: no data goes beside others through {}; {}", one, kNameAdvice);
}

TransportOffer find(const Config& config, int rank, int size) {
  TransportOffer offer;
  tcp::LocalAdapters adapters;
  try {
    adapters = tcp::find_adapters(config.socket_ifname);
    offer.info = adapters.text;
  } catch (const Error&) {  // to join says so
  }
  offer.make = [rank, size, streams = config.tcp_streams, silence_max = config.link_timeout,
                secure = config.secure, adapters = std::move(adapters)](
                   const std::vector<std::string>& infos, SocketSource& sockets) {
    const std::vector<std::string> networks = tcp::shared_networks(infos);
    if (rank == 0) log_networks(networks, infos, adapters);
    sockets.use_networks(networks);
    return std::make_unique<TcpTransport>(
        rank, size, sockets,
        TcpTransport::Options{streams_of(streams, networks.size(), size), silence_max, secure});
  };
  return offer;
}

// Loopback, or 25 Gb/s Ethernet; a core does not copy much faster.
constexpr LinkCost kCost = {.latency_s = 8e-6, .overhead_s = 2e-6, .s_per_byte = 230e-12};

std::vector<std::string> infos_of(const PeerTable& ranks) {
  std::vector<std::string> infos;
  for (const PeerRecord& rank : ranks) infos.emplace_back(info_of(rank, tcp_provider()));
  return infos;
}

double find_rate(const PeerTable& ranks) {
  return std::min(tcp::host_bytes_per_s(infos_of(ranks)), 1 / kCost.s_per_byte);
}

size_t find_spread_bytes_min(const PeerTable& ranks, int tcp_streams) {
  const size_t networks = tcp::shared_networks(infos_of(ranks)).size();
  return TcpTransport::spread_bytes_min(
      streams_of(tcp_streams, networks, static_cast<int>(ranks.size())));
}

/// Of a machine with several adapters.
std::vector<Diagnosis> diagnose() {
  tcp::LocalAdapters adapters;
  try {
    adapters = tcp::find_adapters(config_from_environment().socket_ifname);
  } catch (const Error&) {
    return {};  // of interfaces others tell
  }
  const size_t count = adapters.counted.size();
  if (count + adapters.speedless.size() < 2) return {};
  const std::string counted =
      count == 0 ? "none may carry data beside others"
                 : fmt::format("{} {}", fmt::join(adapters.counted, ", "),
                               count == 1 ? "carries all"
                                          : "carry data side by side to hosts that share their "
                                            "networks, where they are the fastest there");
  std::vector<std::string> others = adapters.speedless;
  others.insert(others.end(), adapters.passed_over.begin(), adapters.passed_over.end());
  return {
      {adapters.speedless.empty() ? Severity::ok : Severity::warn, "adapters of tcp",
       fmt::format("{}{}{}", counted, others.empty() ? "" : "; not so: ", fmt::join(others, ", ")),
       adapters.speedless.empty() ? std::string() : std::string(kNameAdvice)}};
}

}  // namespace

const TransportProvider& tcp_provider() {
  static const TransportProvider provider = {.name = "tcp",
                                             .cost = kCost,
                                             .seals = true,
                                             .find = find,
                                             .find_rate = find_rate,
                                             .find_spread_bytes_min = find_spread_bytes_min,
                                             .diagnose = diagnose};
  return provider;
}

}  // namespace ropewalk

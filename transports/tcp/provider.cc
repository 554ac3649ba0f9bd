#include "transport_choice/provider.h"

#include <fmt/ranges.h>

#include <algorithm>

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

TransportOffer find(const Config& config, int rank, int size) {
  TransportOffer offer;
  try {
    offer.info = tcp::adapters_text(config.socket_ifname);
  } catch (const Error&) {  // to join says so
  }
  offer.make = [rank, size, streams = config.tcp_streams, silence_max = config.link_timeout,
                secure = config.secure](const std::vector<std::string>& infos,
                                        SocketSource& sockets) {
    const std::vector<std::string> networks = tcp::shared_networks(infos);
    if (rank == 0 && !networks.empty())
      log(LogLevel::info, 0, "tcp: hosts share {} networks: {}", networks.size(),
          fmt::join(networks, ", "));
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

}  // namespace

const TransportProvider& tcp_provider() {
  static const TransportProvider provider = {.name = "tcp",
                                             .cost = kCost,
                                             .seals = true,
                                             .find = find,
                                             .find_rate = find_rate,
                                             .find_spread_bytes_min = find_spread_bytes_min};
  return provider;
}

}  // namespace ropewalk

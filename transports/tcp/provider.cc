#include "transport_choice/provider.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "transports/tcp/networks.h"
#include "transports/tcp/tcp_transport.h"

namespace ropewalk {
namespace {

// That a rank has by default, to all others.
constexpr int kSocketsMax = 512;

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
    // Large jobs are short of descriptors sooner than of adapters.
    const int most = std::max(1, kSocketsMax / size);
    const int by_networks = std::clamp(static_cast<int>(networks.size()), 1, most);
    return std::make_unique<TcpTransport>(
        rank, size, sockets,
        TcpTransport::Options{streams > 0 ? streams : by_networks, silence_max, secure});
  };
  return offer;
}

// Loopback, or 25 Gb/s Ethernet; a core does not copy much faster.
constexpr LinkCost kCost = {.latency_s = 8e-6, .overhead_s = 2e-6, .s_per_byte = 230e-12};

double find_rate(const PeerTable& ranks) {
  std::vector<std::string> infos;
  for (const PeerRecord& rank : ranks) {
    const auto told = rank.transport_infos.find(tcp_provider().name);
    infos.push_back(told == rank.transport_infos.end() ? "" : told->second);
  }
  return std::min(tcp::host_bytes_per_s(infos), 1 / kCost.s_per_byte);
}

}  // namespace

const TransportProvider& tcp_provider() {
  static const TransportProvider provider = {
      .name = "tcp", .cost = kCost, .seals = true, .find = find, .find_rate = find_rate};
  return provider;
}

}  // namespace ropewalk

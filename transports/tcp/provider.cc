#include "transport_choice/provider.h"

#include "transports/tcp/tcp_transport.h"

namespace ropewalk {
namespace {

class Maker final : public TransportMaker {
 public:
  Maker(int rank, int size, int streams) : rank_(rank), size_(size), streams_(streams) {}
  std::unique_ptr<Transport> make(const std::vector<std::string>&, SocketSource& sockets) override {
    return std::make_unique<TcpTransport>(rank_, size_, sockets, streams_);
  }

 private:
  const int rank_, size_, streams_;
};

TransportOffer find(const Config& config, int rank, int size) {
  TransportOffer offer;
  offer.maker = std::make_unique<Maker>(rank, size, config.tcp_streams);
  return offer;
}

}  // namespace

const TransportProvider& tcp_provider() {
  // Loopback, or 25 Gb/s Ethernet.
  static const TransportProvider provider = {
      .name = "tcp",
      .cost = {.latency_s = 8e-6, .overhead_s = 2e-6, .s_per_byte = 230e-12},
      .find = find};
  return provider;
}

}  // namespace ropewalk

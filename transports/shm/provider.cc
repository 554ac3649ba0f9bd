#include "transport_choice/provider.h"

#include "transports/shm/shm_transport.h"

namespace ropewalk {
namespace {

TransportOffer find(const Config&, int rank, int size) {
  return offer_shared_memory(std::make_unique<ShmTransport>(rank, size));
}

}  // namespace

TransportOffer offer_shared_memory(std::unique_ptr<ShmTransport> transport) {
  TransportOffer offer;
  offer.info = transport->info();
  // What peers look for is there before they are told of it.
  const auto held = std::make_shared<std::unique_ptr<ShmTransport>>(std::move(transport));
  offer.make = [held](const std::vector<std::string>& infos, SocketSource&) {
    (*held)->set_peers(infos);
    return std::move(*held);
  };
  return offer;
}

const TransportProvider& shm_provider() {
  // A cache line crosses cores in 150 ns, 15 GB/s of them.
  static const TransportProvider provider = {
      .name = "shm",
      .cost = {.latency_s = 150e-9, .overhead_s = 20e-9, .s_per_byte = 65e-12},
      .maps = true,
      .find = find};
  return provider;
}

}  // namespace ropewalk

#include "transport_choice/provider.h"

#include "transports/shm/shm_transport.h"

namespace ropewalk {
namespace {

/// What peers look for is there before they are told of it.
class Mailbox final : public TransportMaker {
 public:
  explicit Mailbox(std::unique_ptr<ShmTransport> transport) : transport_(std::move(transport)) {}
  std::unique_ptr<Transport> make(const std::vector<std::string>& infos, SocketSource&) override {
    transport_->set_peers(infos);
    return std::move(transport_);
  }

 private:
  std::unique_ptr<ShmTransport> transport_;
};

TransportOffer find(const Config&, int rank, int size) {
  return offer_shared_memory(std::make_unique<ShmTransport>(rank, size));
}

}  // namespace

TransportOffer offer_shared_memory(std::unique_ptr<ShmTransport> transport) {
  TransportOffer offer;
  offer.info = transport->info();
  offer.maker = std::make_unique<Mailbox>(std::move(transport));
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

#include "tests/conformance/transport_suite.h"
#include "transports/tcp/local_sockets.h"
#include "transports/verbs/verbs_transport.h"

namespace ropewalk::conformance {
namespace {

class VerbsGroup final : public TransportGroup {
 public:
  VerbsGroup(int ranks, size_t lanes) : network_(ranks, tcp::LocalNetwork::Kind::unix_sockets) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<std::string> why_not;
      auto ports = verbs::find_ports({}, why_not);
      VerbsTransport::Options options;
      for (int peer = 0; peer < ranks; ++peer) {
        options.lanes.emplace_back();
        for (size_t lane = 0; lane < lanes; ++lane)
          options.lanes.back().push_back(static_cast<uint8_t>(lane % ports.size()));
      }
      transports_.push_back(std::make_unique<VerbsTransport>(rank, ranks, network_.source(rank),
                                                             std::move(ports), std::move(options)));
    }
  }
  Transport& at(int rank) override { return *transports_.at(static_cast<size_t>(rank)); }

 private:
  tcp::LocalNetwork network_;
  std::vector<std::unique_ptr<VerbsTransport>> transports_;
};

}  // namespace

TransportKind verbs_kind(size_t lanes) {
  return {"Verbs" + std::to_string(lanes),
          [lanes](int ranks) { return std::make_unique<VerbsGroup>(ranks, lanes); }};
}

}  // namespace ropewalk::conformance

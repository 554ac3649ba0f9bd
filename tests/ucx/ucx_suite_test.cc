// The conformance suite of transports, over UCX with the wires that UCX_TLS names.
#include "tests/conformance/transport_suite.h"
#include "transports/tcp/local_sockets.h"
#include "transports/ucx/ucx_transport.h"

namespace ropewalk::conformance {
namespace {

class Group final : public TransportGroup {
 public:
  Group(int ranks, bool local) : network_(ranks, tcp::LocalNetwork::Kind::unix_sockets) {
    for (int rank = 0; rank < ranks; ++rank)
      transports_.push_back(std::make_unique<UcxTransport>(
          rank, network_.source(rank), std::vector<bool>(static_cast<size_t>(ranks), local)));
  }
  Transport& at(int rank) override { return *transports_.at(static_cast<size_t>(rank)); }

 private:
  tcp::LocalNetwork network_;
  std::vector<std::unique_ptr<UcxTransport>> transports_;
};

TransportKind ucx_kind(bool local) {
  return {local ? "WithinAHost" : "BetweenHosts",
          [local](int ranks) { return std::make_unique<Group>(ranks, local); }};
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportSuite, ::testing::Values(ucx_kind(true), ucx_kind(false)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ropewalk::conformance

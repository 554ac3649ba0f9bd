#include "tests/conformance/transport_suite.h"
#include "transports/tcp/tcp_transport.h"
#include "transports/tcp/test_sockets.h"

namespace ropewalk::conformance {
namespace {

class TcpGroup final : public TransportGroup {
 public:
  TcpGroup(int ranks, const TcpTransport::Options& options)
      : network_(ranks, tcp::LocalNetwork::Kind::loopback) {
    for (int rank = 0; rank < ranks; ++rank)
      transports_.push_back(
          std::make_unique<TcpTransport>(rank, ranks, network_.source(rank), options));
  }
  Transport& at(int rank) override { return *transports_.at(static_cast<size_t>(rank)); }

 private:
  tcp::LocalNetwork network_;
  std::vector<std::unique_ptr<TcpTransport>> transports_;
};

TransportParam tcp_kind(std::string name, const TcpTransport::Options& options) {
  return {std::move(name),
          [options](int ranks) { return std::make_unique<TcpGroup>(ranks, options); }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Tcp, TransportSuite,
                         testing::Values(tcp_kind("Tcp1", {}), tcp_kind("Tcp3", {.streams = 3}),
                                         tcp_kind("TcpSealed1", {.secure = true}),
                                         tcp_kind("TcpSealed3", {.streams = 3, .secure = true})),
                         [](const auto& info) { return info.param.name; });

}  // namespace ropewalk::conformance

#include "tests/conformance/transport_suite.h"
#include "transports/shm/shm_transport.h"

namespace ropewalk::conformance {
namespace {

class ShmGroup final : public TransportGroup {
 public:
  explicit ShmGroup(int ranks) {
    std::vector<std::string> infos;
    for (int rank = 0; rank < ranks; ++rank) {
      transports_.push_back(std::make_unique<ShmTransport>(rank, ranks));
      infos.push_back(transports_.back()->info());
    }
    for (auto& transport : transports_) transport->set_peers(infos);
  }
  Transport& at(int rank) override { return *transports_.at(static_cast<size_t>(rank)); }

 private:
  std::vector<std::unique_ptr<ShmTransport>> transports_;
};

TransportParam shm_kind() {
  return {"Shm", [](int ranks) { return std::make_unique<ShmGroup>(ranks); }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Shm, TransportSuite, testing::Values(shm_kind()),
                         [](const auto& info) { return info.param.name; });

}  // namespace ropewalk::conformance

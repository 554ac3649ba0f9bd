#include "tests/conformance/transport_suite.h"
#include "transports/fake/instant_fabric.h"

namespace ropewalk::conformance {
namespace {

class InstantGroup final : public TransportGroup {
 public:
  InstantGroup(int ranks, bool load_store) : fabric_(ranks, {.load_store = load_store}) {}
  Transport& at(int rank) override { return fabric_.transport(rank); }

 private:
  InstantFabric fabric_;
};

TransportParam instant_kind(bool load_store) {
  return {std::string("Instant") + (load_store ? "LoadStore" : "Put"),
          [load_store](int ranks) { return std::make_unique<InstantGroup>(ranks, load_store); },
          /*one_thread_per_rank=*/false};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Instant, TransportSuite,
                         testing::Values(instant_kind(false), instant_kind(true)),
                         [](const auto& info) { return info.param.name; });

}  // namespace ropewalk::conformance

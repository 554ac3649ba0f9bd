#include "tests/conformance/transport_suite.h"
#include "transports/fake/fake_fabric.h"

namespace ropewalk::conformance {
namespace {

class FakeGroup final : public TransportGroup {
 public:
  FakeGroup(int ranks, uint64_t seed, FakeOptions options) : fabric_(ranks, seed, options) {}
  Transport& at(int rank) override { return fabric_.transport(rank); }
  void pass_time() override { fabric_.advance(); }

 private:
  FakeFabric fabric_;
};

TransportParam kind_of(const std::string& name, uint64_t seed, const FakeOptions& options) {
  return {"Fake" + std::to_string(seed) + name,
          [seed, options](int ranks) { return std::make_unique<FakeGroup>(ranks, seed, options); },
          /*one_thread_per_rank=*/false};
}

/// `load_store`: with MappedMemory; else puts only.
TransportParam fake_kind(uint64_t seed, bool load_store) {
  FakeOptions options;
  options.load_store = load_store;
  options.needs_registration = !load_store;
  return kind_of(load_store ? "LoadStore" : "Put", seed, options);
}

/// Refuses sources that are not registered, as an adapter does.
TransportParam fake_registered_kind(uint64_t seed) {
  FakeOptions options;
  options.registered_sources = true;
  return kind_of("RegisteredSources", seed, options);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, TransportSuite,
                         testing::Values(fake_kind(1, false), fake_kind(2, true),
                                         fake_kind(3, false), fake_registered_kind(4)),
                         [](const auto& info) { return info.param.name; });

}  // namespace ropewalk::conformance

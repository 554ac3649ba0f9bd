// The conformance suite of transports, over verbs. With TEST_ADAPTERS=2 every second lane lies on a
// second adapter.
#include <cstdlib>
#include <string_view>

#include "tests/conformance/transport_suite.h"
#include "tests/rdma/machine.h"
#include "tests/rdma/verbs_group.h"

namespace ropewalk::conformance {
namespace {

class Group final : public TransportGroup {
 public:
  Group(int ranks, size_t lanes) : group_(ranks, lanes) {}
  Transport& at(int rank) override { return group_.at(rank); }

 private:
  testing::VerbsGroup group_;
};

TransportParam verbs_kind(size_t lanes) {
  return {"Lanes" + std::to_string(lanes),
          [lanes](int ranks) { return std::make_unique<Group>(ranks, lanes); }};
}

[[maybe_unused]] const auto* const adapters = [] {
  const char* count = std::getenv("TEST_ADAPTERS");
  const bool two = count != nullptr && std::string_view(count) == "2";
  return two ? ::testing::AddGlobalTestEnvironment(new testing::SecondAdapter) : nullptr;
}();

INSTANTIATE_TEST_SUITE_P(Verbs, TransportSuite, ::testing::Values(verbs_kind(1), verbs_kind(3)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ropewalk::conformance

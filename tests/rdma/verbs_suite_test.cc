// The conformance suite of transports, over verbs.
#include "tests/conformance/transport_suite.h"
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

TransportKind verbs_kind(size_t lanes) {
  return {"Lanes" + std::to_string(lanes),
          [lanes](int ranks) { return std::make_unique<Group>(ranks, lanes); }};
}

INSTANTIATE_TEST_SUITE_P(Verbs, TransportSuite, ::testing::Values(verbs_kind(1), verbs_kind(3)),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ropewalk::conformance

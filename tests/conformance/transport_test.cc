// The transports that the suite runs on.
#include "tests/conformance/transport_suite.h"

namespace ropewalk::conformance {

INSTANTIATE_TEST_SUITE_P(All, TransportSuite,
                         testing::Values(shm_kind(), tcp_kind(1), tcp_kind(3), fake_kind(1, false),
                                         fake_kind(2, true), fake_kind(3, false),
                                         fake_registered_kind(4), instant_kind(false),
                                         instant_kind(true)),
                         [](const auto& info) { return info.param.name; });

}  // namespace ropewalk::conformance

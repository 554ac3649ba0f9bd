// A rank that had sent its part of a reduce and left was declared lost while its message waited at
// the root for a slower rank's.
#include <gtest/gtest.h>

#include <thread>

#include "tests/faults/forked_job.h"
#include "tests/support/under_test.h"

namespace ropewalk::testing {
namespace {

class MessageOfARankThatLeft : public ::testing::TestWithParam<std::string> {};

TEST_P(MessageOfARankThatLeft, IsStillGood) {
  Options options;
  options.size = 4;
  options.transport = GetParam();
  const auto body = [](Communicator& comm) {
    std::vector<float> in(8, 1.0f), out(8);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    comm.reduce(std::span<const float>(in), std::span(out), 0);
    if (comm.rank() == 0 && out[7] != 4)
      throw Error(ErrorCode::protocol, "test", "the sum is wrong");
  };
  ForkedJob job(4, options, body);
  job.mark();
  for (const Verdict& verdict : job.verdicts(-1, 20)) {
    EXPECT_TRUE(verdict.told) << verdict.text;
    EXPECT_EQ(verdict.code, 0) << verdict.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, MessageOfARankThatLeft,
                         ::testing::ValuesIn(transports_under_test()));

}  // namespace
}  // namespace ropewalk::testing

#include "base/log.h"

#include <gtest/gtest.h>

namespace ropewalk {
namespace {

std::string printed(int rank) {
  testing::internal::CaptureStderr();
  log_line(LogLevel::warn, rank, "text");
  return testing::internal::GetCapturedStderr();
}

// It said "ropewalk[rank -1]" where the rank is not known yet.
TEST(Log, SaysNothingOfARankMinusOne) {
  EXPECT_EQ(printed(-1), "ropewalk warn: text\n");
  EXPECT_EQ(printed(0), "ropewalk[rank 0] warn: text\n");
}

}  // namespace
}  // namespace ropewalk

#include "communicator/former_epoch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ropewalk {
namespace {

TEST(FormerEpochTest, EndsByItself) {
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = kept;
  const FormerEpoch former(std::move(kept));
  while (!seen.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(FormerEpochTest, EndsWithTheEpochThatFollows) {
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = kept;
  { const FormerEpoch former(std::move(kept)); }
  EXPECT_TRUE(seen.expired());
}

/// As a communicator that the program has not ended.
TEST(FormerEpochTest, LeavesWhatOthersHold) {
  const auto held = std::make_shared<int>(7);
  { const FormerEpoch former(held); }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace ropewalk

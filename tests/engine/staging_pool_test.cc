#include "engine/staging_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "tests/support/descriptors.h"
#include "transports/fake/instant_fabric.h"

namespace ropewalk {
namespace {

class StagingPoolTest : public ::testing::Test {
 protected:
  InstantFabric fabric_{1};
  StagingPool pool_{{&fabric_.transport(0)}};
};

TEST_F(StagingPoolTest, ShortOnesShareDescriptorsAndOverlapNowhere) {
  const int before = ropewalk::testing::open_descriptors();
  std::vector<std::unique_ptr<Staging>> taken;
  std::set<std::byte*> begins;
  for (int i = 0; i < 500; ++i) {
    taken.push_back(pool_.take(static_cast<size_t>(1 + i * 37)));
    const Region region = taken.back()->region();
    EXPECT_GE(region.bytes, static_cast<size_t>(1 + i * 37));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(region.base) % 4096, 0u);
    std::memset(region.base, i % 256, region.bytes);
    const MemoryRegistration& registration = *taken.back()->registrations().at(0);
    EXPECT_LE(registration.base(), region.base);
    EXPECT_LE(region.base + region.bytes, registration.base() + registration.key().bytes);
    EXPECT_TRUE(begins.insert(region.base).second);
  }
  EXPECT_LE(ropewalk::testing::open_descriptors() - before, 16);
  for (int i = 0; i < 500; ++i) {
    const Region region = taken[static_cast<size_t>(i)]->region();
    EXPECT_EQ(region.base[0], static_cast<std::byte>(i % 256));
    EXPECT_EQ(region.base[region.bytes - 1], static_cast<std::byte>(i % 256));
  }
}

TEST_F(StagingPoolTest, WhatIsGivenBackIsTakenAgain) {
  std::byte* const first = pool_.take(5'000)->data();
  auto again = pool_.take(8'000);
  EXPECT_EQ(again->data(), first);
  EXPECT_NE(pool_.take(8'000)->data(), first);
}

TEST_F(StagingPoolTest, LongOnesGoWithTheirMemory) {
  const int before = ropewalk::testing::open_descriptors();
  {
    const auto large = pool_.take(3 << 20);
    EXPECT_EQ(large->region().bytes, size_t{3} << 20);
    EXPECT_EQ(ropewalk::testing::open_descriptors(), before + 1);
  }
  EXPECT_EQ(ropewalk::testing::open_descriptors(), before);
}

TEST_F(StagingPoolTest, OnesThatAreHeldOutliveThePool) {
  auto pool = std::make_unique<StagingPool>(std::vector<Transport*>{&fabric_.transport(0)});
  const auto held = pool->take(100);
  pool.reset();
  held->data()[99] = std::byte{1};
}

}  // namespace
}  // namespace ropewalk

#include "memory/regions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace ropewalk {
namespace {

Region region_at(std::byte* base, size_t bytes) {
  Region region;
  region.base = base;
  region.bytes = bytes;
  return region;
}

TEST(Regions, AreFoundByKeyAndWithinTheirBytes) {
  std::array<std::byte, 100> memory;
  Regions regions;
  const uint64_t id = regions.add(region_at(memory.data(), 100));
  EXPECT_EQ(regions.find(id, 0, 100), memory.data());
  EXPECT_EQ(regions.find(id, 100, 0), memory.data() + 100);
  EXPECT_EQ(regions.find(id, 60, 41), nullptr);
  EXPECT_EQ(regions.find(id, ~uint64_t{0}, 2), nullptr);
  EXPECT_EQ(regions.find(id, 2, ~uint64_t{0}), nullptr);
}

TEST(Regions, KeysThatWereNeverGivenNameNothing) {
  std::byte byte;
  Regions regions;
  EXPECT_EQ(regions.find(uint64_t{1} << 32, 0, 1), nullptr);
  const uint64_t id = regions.add(region_at(&byte, 1));
  for (const uint64_t forged : {uint64_t{0}, id + 1, id + (uint64_t{1} << 32), id & 0xffffffff,
                                ~uint64_t{0}, uint64_t{1} << 32 | 0xffffffff})
    EXPECT_EQ(regions.find(forged, 0, 1), nullptr) << std::hex << forged;
}

TEST(Regions, AKeyOfOneThatHasGoneNeverNamesALaterOne) {
  std::byte byte;
  Regions regions;
  const uint64_t old = regions.add(region_at(&byte, 1));
  regions.remove(old);
  EXPECT_EQ(regions.find(old, 0, 1), nullptr);
  const uint64_t now = regions.add(region_at(&byte, 1));
  EXPECT_EQ(static_cast<uint32_t>(now), static_cast<uint32_t>(old));  // the slot is used again
  EXPECT_EQ(regions.find(old, 0, 1), nullptr);
  EXPECT_EQ(regions.find(now, 0, 1), &byte);
}

TEST(Regions, AreManyAndStayWhereTheyAre) {
  std::vector<std::byte> memory(10'000);
  Regions regions;
  std::vector<uint64_t> ids;
  for (std::byte& byte : memory) ids.push_back(regions.add(region_at(&byte, 1)));
  for (size_t i = 0; i < memory.size(); ++i) ASSERT_EQ(regions.find(ids[i], 0, 1), &memory[i]);
}

/// What is found is whole: never the address of one region with the length of another.
TEST(Regions, AreFoundWhileOthersComeAndGo) {
  std::array<std::byte, 64> memory;
  Regions regions;
  std::atomic<uint64_t> newest = 0;
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (size_t i = 0; i < 200'000; ++i) {
      // The region at byte n has 64 - n bytes.
      const size_t begin = i % memory.size();
      const uint64_t id = regions.add(region_at(memory.data() + begin, memory.size() - begin));
      newest = id;
      regions.remove(id);
    }
    done = true;
  });
  while (!done) {
    const uint64_t id = newest;
    for (size_t bytes = 1; bytes <= memory.size(); ++bytes) {
      const std::byte* found = regions.find(id, 0, bytes);
      if (found == nullptr) continue;
      ASSERT_LE(found + bytes, memory.data() + memory.size());
    }
  }
  writer.join();
}

}  // namespace
}  // namespace ropewalk

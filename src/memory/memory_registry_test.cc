#include "memory/memory_registry.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ropewalk {
namespace {

TEST(MemoryRegistry, FindsEveryRangeInside) {
  MemoryRegistry registry;
  std::vector<std::shared_ptr<RegisteredMemory>> memories;
  for (size_t bytes : {size_t{1}, size_t{4096}, size_t{10001}, size_t{3} << 20}) {
    memories.push_back(std::make_shared<RegisteredMemory>(bytes));
    registry.add(memories.back());
  }
  for (const auto& memory : memories) {
    EXPECT_EQ(registry.find(memory->data(), memory->bytes()), memory);
    EXPECT_EQ(registry.find(memory->data() + memory->bytes() - 1, 1), memory);
    EXPECT_EQ(registry.find(memory->data() + memory->bytes() / 2, memory->bytes() / 2 + 1),
              memory->bytes() % 2 ? memory : nullptr);
  }
}

TEST(MemoryRegistry, RefusesWhatIsNotWhollyInside) {
  MemoryRegistry registry;
  const auto memory = std::make_shared<RegisteredMemory>(10000);
  registry.add(memory);
  EXPECT_EQ(registry.find(memory->data(), 10001), nullptr);
  EXPECT_EQ(registry.find(memory->data() + 10000, 1), nullptr);
  EXPECT_EQ(registry.find(memory->data() - 1, 2), nullptr);
  EXPECT_EQ(registry.find(memory->data() + 1, ~size_t{0}), nullptr);
  EXPECT_EQ(registry.find(memory->data(), 0), nullptr);
  EXPECT_EQ(registry.find(&registry, 1), nullptr);
}

TEST(MemoryRegistry, ForgetsTheDeadAndSurvivesReuseOfTheirAddresses) {
  MemoryRegistry registry;
  for (int round = 0; round < 50; ++round) {
    auto large = std::make_shared<RegisteredMemory>(size_t{1} << 20);
    registry.add(large);
    const std::byte* address = large->data();
    large.reset();
    EXPECT_EQ(registry.find(address, 1), nullptr);
    const auto small = std::make_shared<RegisteredMemory>(5000);  // often inside the old range
    registry.add(small);
    EXPECT_EQ(registry.find(small->data(), 5000), small);
  }
}

TEST(MemoryRegistry, ServesManyThreads) {
  MemoryRegistry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&registry] {
      for (int i = 0; i < 50; ++i) {
        const auto memory = std::make_shared<RegisteredMemory>(4096);
        registry.add(memory);
        EXPECT_EQ(registry.find(memory->data() + 5, 10), memory);
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace ropewalk
